"""The active controller: one change of the metadata at a time, from request to answer.

    decide(image) ──► append ──► committed ──► new image ──► applied on this broker ──► answer

A change is decided on the image that has every change before it. Its records are one batch, so it
is in the log whole or not at all. It is answered when this broker has applied it, so that a topic
that was created takes records.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import MetadataRecord
from millrace_server.api_error import ApiError
from millrace_server.controller.applier import MetadataApplier, NotApplied
from millrace_server.controller.metadata_log import MetadataLog
from millrace_server.controller.snapshots import SnapshotWriter, load_image
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.replica_directories import assign_directories

log = get_logger("millrace.controller")
Decide = Callable[[ClusterImage], Sequence[MetadataRecord]]


class ActiveController:
    """The only writer of the metadata log and of the cache. `load` once, `close` at the end."""

    def __init__(
        self,
        metadata_log: MetadataLog,
        cache: MetadataCache,
        applier: MetadataApplier,
        env: Environment,
        *,
        broker_id: int,
        snapshot_bytes: int,
    ) -> None:
        self._log = metadata_log
        self._cache = cache
        self._applier = applier
        self._env = env
        self._broker_id = broker_id
        self._snapshots = SnapshotWriter(env, metadata_log, bytes_between=snapshot_bytes)
        # Held across the waits for commit and disk on purpose: the next change is decided on an
        # image that has this one.
        self._one_change = asyncio.Lock()
        self._is_closed = False

    def load(self) -> None:
        """Makes the image of the newest snapshot and the log behind it. Blocking.

        Raises `UnreadableMetadata`, `CorruptLog` and `OSError`.
        """
        self._cache.image = load_image(self._env.disk, self._log)

    async def change(self, decide: Decide, *, undo: Decide | None = None) -> ClusterImage:
        """Commits and applies the records that `decide` returns; returns the image behind them.

        With `undo` a change that is committed and cannot be applied here is followed by the change
        that takes it back. Raises what `decide` raises; `NotWritten` when nothing has changed; and
        `NotApplied`. The change runs to its end even when the caller is cancelled: a client that
        hangs up must not leave a record that is committed and not applied.
        """
        task = self._env.spawn.task(self._change(decide, undo), name="metadata change")
        return await asyncio.shield(task)

    async def assign(self, topic_id: uuid.UUID, number: int) -> None:
        """Commits that this broker has created a replica. Raises `ApiError`."""
        await self.change(lambda image: self._assigned(image, [(topic_id, number)]))

    async def close(self) -> None:
        """Refuses every further change; returns when the one in progress, if any, is done."""
        self._is_closed = True
        async with self._one_change:
            pass
        await self._snapshots.close()

    async def _change(self, decide: Decide, undo: Decide | None) -> ClusterImage:
        async with self._one_change:
            if self._is_closed:
                raise ApiError(ErrorCode.BROKER_STOPPING)
            self._log.check_usable()
            try:
                await self._commit(decide(self._cache.image))
            except NotApplied as failed:
                if undo is not None:
                    await self._take_back(undo, failed)
                raise
            return self._cache.image

    async def _take_back(self, undo: Decide, failed: NotApplied) -> None:
        try:
            await self._commit(undo(self._cache.image))
        except ApiError as error:
            # The change stays; the broker goes on trying to apply it.
            log.error("metadata change not taken back", reason=error.message)
            raise failed from error

    async def _commit(self, records: Sequence[MetadataRecord]) -> None:
        if not records:
            return
        end_offset = self._log.append(records)
        await self._log.committed(end_offset)
        delta = Delta(self._cache.image)
        for record in records:
            delta.replay(record)
        self._cache.image = image = delta.image(end_offset)
        self._snapshots.note_commit(image)
        created = await self._applier.apply(delta)
        if created:
            await self._commit_created(image, created)

    async def _commit_created(
        self, image: ClusterImage, created: Sequence[tuple[uuid.UUID, int]]
    ) -> None:
        try:
            await self._commit(self._assigned(image, created))
        except ApiError as error:
            self._applier.give_up(created, error)
            raise NotApplied(error.code, error.message) from error

    def _assigned(
        self, image: ClusterImage, created: Sequence[tuple[uuid.UUID, int]]
    ) -> Sequence[MetadataRecord]:
        broker = image.brokers[self._broker_id]
        return assign_directories(
            image, self._broker_id, broker.directory_ids[0], created, broker_epoch=broker.epoch
        )
