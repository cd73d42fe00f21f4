"""The active controller: one change of the metadata at a time, from request to answer.

    decide(image) ──► append ──► committed ──► published on this broker ──► answer

The broker that leads the quorum is the active controller. A change is decided on the image that has
every change before it. Its records are one batch, so it is in the log whole or not at all. It is
answered when this broker has applied it, so that a topic that was created takes records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import MetadataRecord
from millrace_server.api_error import ApiError
from millrace_server.controller.applier import NotApplied
from millrace_server.controller.metadata_publisher import MetadataPublisher
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.quorum.metadata_log import MetadataLog, NotWritten
from millrace_server.quorum.replica import Event, QuorumReplica
from millrace_server.raft.node import VoterChangeRefused
from millrace_server.raft.voters import VoterSet

log = get_logger("millrace.controller")
T = TypeVar("T")
Decide = Callable[[ClusterImage], Sequence[MetadataRecord]]
VoterChange = Callable[[ClusterImage, VoterSet], Event]
"""Decides on the image and the voters in force; returns the event of the replica."""


class _Parts(NamedTuple):
    log: MetadataLog
    replica: QuorumReplica
    publisher: MetadataPublisher

    def check_usable(self) -> None:
        self.log.check_usable()
        if self.replica.refusal is not None:
            refused = as_api_error(self.replica.refusal)
            raise NotWritten(refused.code, refused.message)

    async def published(self, end_offset: int) -> asyncio.Future[None] | None:
        await self.log.committed(end_offset)
        return await self.publisher.published(end_offset)


class ActiveController:
    """Takes changes while this broker leads the quorum; `close` at the end."""

    def __init__(self, cache: MetadataCache, env: Environment, *, leader_wait_ms: int) -> None:
        self._cache = cache
        self._env = env
        self._parts: _Parts | None = None
        self._leader_wait_ms = leader_wait_ms
        # Held across the waits for commit and disk on purpose: the next change is decided on an
        # image that has this one.
        self._one_change = asyncio.Lock()
        self._leader_changed = asyncio.Event()
        self._is_closed = False
        self._is_changing_voters = False
        self._failure: BaseException | None = None

    def attach(
        self, metadata_log: MetadataLog, replica: QuorumReplica, publisher: MetadataPublisher
    ) -> None:
        """Works with the log from now on; before it no change is possible."""
        self._parts = _Parts(metadata_log, replica, publisher)

    @property
    def is_active(self) -> bool:
        """Whether this broker leads the quorum."""
        return self._parts is not None and self._parts.replica.leading_epoch is not None

    @property
    def epoch(self) -> int | None:
        """The epoch of the quorum in which this broker leads it, None if it does not."""
        return None if self._parts is None else self._parts.replica.leading_epoch

    @property
    def is_ready(self) -> bool:
        """Whether this broker leads the quorum, and its image has all that earlier leaders have
        left in the log."""
        parts = self._parts
        if parts is None or not self.is_active:
            return False
        return self._cache.image.end_offset > parts.log.epoch_start_offset

    def check_ready(self) -> None:
        """Raises `ApiError` unless `is_ready` is true."""
        if not self.is_ready:
            raise ApiError(ErrorCode.NOT_CONTROLLER)

    def on_leader_changed(self) -> None:
        """The quorum has another leader, or waits for the disk."""
        changed, self._leader_changed = self._leader_changed, asyncio.Event()
        changed.set()

    async def change(self, decide: Decide, *, undo: Decide | None = None) -> ClusterImage:
        """Commits and applies the records that `decide` returns; returns the image behind them.

        With `undo` a change that is committed and cannot be applied here is followed by the change
        that takes it back. Raises what `decide` raises; `NotWritten` when nothing has changed; and
        `NotApplied`. The change runs to its end even when the caller is cancelled: a client that
        hangs up must not leave a record that is committed and not applied.
        """
        return await self._to_the_end(self._change(decide, undo), name="metadata change")

    async def registered(self, count: int, *, timeout_ms: int) -> None:
        """Returns when so many brokers are registered, or the time is over. Raises `ApiError`."""
        if self._parts is not None and len(self._cache.image.brokers) < count:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._parts.publisher.until(lambda image: len(image.brokers) >= count)

    async def change_voters(self, change: VoterChange) -> None:
        """Commits another set of voters: `change(image, voters)` says which, or refuses.

        One at a time: raises `ApiError` while another change is not committed, and what `change`
        raises. Like `change` it runs to its end when the caller is cancelled.
        """
        if self._is_changing_voters:
            raise ApiError(
                ErrorCode.VOTER_CHANGE_REFUSED,
                "Another change of the voters is not committed yet; try again",
            )
        self._is_changing_voters = True
        await self._to_the_end(self._change_voters(change), name="voter change")

    async def _to_the_end(self, change: Coroutine[Any, Any, T], *, name: str) -> T:
        """What a change returns or raises. It runs on when the caller is cancelled."""
        task = self._env.spawn.task(change, name=name)
        task.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(task)
        finally:
            # A refusal's traceback keeps this frame, and with it a task that keeps the refusal:
            # the caller's frames, and its connection, would wait for the garbage collector.
            del task

    async def _change_voters(self, change: VoterChange) -> None:
        try:
            until_ms = self._wait_end_ms()
            async with self._one_change:
                parts = await self._until_active(until_ms)
                await parts.published(parts.log.end_offset)
                image, voters = self._cache.image, parts.replica.voters
                event = change(image, voters)
                try:
                    end_offset = await parts.replica.change_voters(event)
                except VoterChangeRefused as refused:
                    raise ApiError(ErrorCode.VOTER_CHANGE_REFUSED, str(refused)) from refused
                await parts.published(end_offset)
        finally:
            self._is_changing_voters = False

    def fail(self, error: BaseException) -> None:
        """The metadata cannot be followed any more: every change fails with `error`.

        Also a change that waits for its commit: a replica that has failed commits nothing.
        """
        self._failure = self._failure or error
        if self._parts is not None:
            self._parts.log.fail(error)
        self.on_leader_changed()

    async def close(self) -> None:
        """Refuses every further change; returns when the one in progress, if any, is done."""
        self._is_closed = True
        self.on_leader_changed()
        async with self._one_change:
            pass

    async def _change(self, decide: Decide, undo: Decide | None) -> ClusterImage:
        try:
            image, created = await self._commit(decide)
            if created is not None:
                await created
        except NotApplied as failed:
            if undo is not None:
                await self._take_back(undo, failed)
            raise
        return image

    async def _take_back(self, undo: Decide, failed: NotApplied) -> None:
        try:
            await self._commit(undo)
        except ApiError as error:
            # The change stays; the broker goes on trying to apply it.
            log.error("metadata change not taken back", reason=error.message)
            raise failed from error

    async def _commit(self, decide: Decide) -> tuple[ClusterImage, asyncio.Future[None] | None]:
        """The image behind the change, and what is done when the replicas that the change has
        created here are in service: other changes may come before that."""
        # The wait of those before it counts: each on its own would make the last wait for minutes.
        until_ms = self._wait_end_ms()
        async with self._one_change:
            if self._is_closed:
                raise ApiError(ErrorCode.BROKER_STOPPING)
            parts = await self._until_active(until_ms)
            # What an earlier leader has left in the log is part of the image first.
            await parts.published(parts.log.end_offset)
            records = decide(self._cache.image)
            if not records:
                return self._cache.image, None
            try:
                end_offset = parts.log.append(records)
            except ApiError as error:
                if error.code is ErrorCode.DISK_FULL:
                    # Until there is room nothing could be changed, and another voter may have some.
                    parts.replica.resign()
                raise
            parts.replica.on_appended()
            created = await parts.published(end_offset)
            return self._cache.image, created

    def _check_not_failed(self) -> None:
        if isinstance(self._failure, CORE_ERRORS):
            raise as_api_error(self._failure) from self._failure
        if self._failure is not None:
            raise self._failure

    def _wait_end_ms(self) -> int:
        """When a change that comes now gives up the wait for a leader."""
        return self._env.clock.monotonic_ms() + self._leader_wait_ms

    async def _until_active(self, until_ms: int) -> _Parts:
        """Returns when this broker leads. Raises `NotWritten` if another one does, or none does
        before `until_ms`."""
        wait_ms = until_ms - self._env.clock.monotonic_ms()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while True:
                    self._check_not_failed()
                    parts = self._parts
                    if parts is not None:
                        parts.check_usable()
                        if self.is_active:
                            return parts
                        if parts.replica.leader_id not in (None, parts.replica.key.broker_id):
                            raise NotWritten(ErrorCode.NOT_CONTROLLER)
                    if self._is_closed:
                        raise ApiError(ErrorCode.BROKER_STOPPING)
                    await self._leader_changed.wait()
        except TimeoutError:
            raise NotWritten(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The metadata log has no leader since {self._leader_wait_ms} ms: a majority of "
                "the voters must be running and reach each other; try again then",
            ) from None


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Marks the exception of a change as seen: its caller may have been cancelled."""
    if not task.cancelled():
        task.exception()
