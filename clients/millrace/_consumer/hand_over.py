"""Assigned and revoked partitions: the steps of a consumer before and after it reads them.

Owns the order of the steps. The consumer looks up a position and calls the user before it reads the
first record. It finishes and commits records in process, and calls the user, before another member
reads the partition.
Knows no protocol. Each wait has a bound.

No lock is held while a callback runs, and only calls that would wait for the rebalance the callback
is part of are refused in it (`InCallback`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from millrace._consumer.fetch_buffer import FetchBuffer
from millrace._consumer.group_offsets import GroupOffsets
from millrace._consumer.partition_state import Hold, PartitionState
from millrace._consumer.positions import Positions
from millrace._group.effects import Assign, Revoke
from millrace.config import ConsumerConfig
from millrace.errors import CallbackFailed
from millrace.events import EventFeed, EventKind
from millrace.records import TopicPartition

Callback = Callable[[list[TopicPartition]], object]
"""Called with sorted partitions; an awaitable result is awaited."""


@dataclass(frozen=True)
class Callbacks:
    """The callbacks of the user; `on_lost` None: the same as `on_revoked`."""

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None


class HandOvers:
    """The hand-overs of one consumer. `asked` is to be set whenever the user asks for more, and
    when it is not worth waiting for it any longer.
    """

    def __init__(
        self,
        positions: Positions,
        reading: FetchBuffer,
        offsets: GroupOffsets,
        config: ConsumerConfig,
        *,
        callbacks: Callbacks,
        feed: EventFeed,
    ) -> None:
        self.asked = asyncio.Event()
        self._positions = positions
        self._fetch_buffer = reading
        self._offsets = offsets
        self._config = config
        self._callbacks = callbacks
        self._feed = feed
        self._callback_task: asyncio.Task[object] | None = None
        self.callback_error: CallbackFailed | None = None
        """What a callback raised, until one returns."""

    @property
    def in_callback(self) -> bool:
        """Whether the caller is a callback of a rebalance."""
        task = self._callback_task
        return task is not None and task is asyncio.current_task()

    async def take_over(self, assign: Assign) -> None:
        """Begins to read the added partitions."""
        added = sorted(assign.added)
        if added:
            await self._offsets.begin(added)
            await self._tell(self._callbacks.on_assigned, added)
            self._offsets.release(added)

    async def let_go(self, revoke: Revoke, *, is_worth_waiting: Callable[[], bool]) -> None:
        """Ends to read the revoked or lost partitions.

        The user has `drain_timeout_ms` to finish the records in process while
        `is_worth_waiting`, and the commit as long again.
        """
        partitions = sorted(revoke.partitions)
        states = [self._positions[where] for where in partitions if where in self._positions]
        self._fetch_buffer.give_back()
        for state in states:
            self._positions.hold(state, Hold.REVOKED)
        names = ", ".join(map(str, partitions))
        if revoke.lost is None:
            await self._drain(states, is_worth_waiting)
            if self._config.auto_commit:
                offsets = self._offsets.processed(states)
                await self._offsets.commit(offsets, timeout_ms=self._config.drain_timeout_ms)
            await self._tell(self._callbacks.on_revoked, partitions)
            self._feed.emit(EventKind.REVOKED, f"gave up {names}")
        else:
            await self.tell_lost(partitions)
        self._positions.remove(partitions)
        self._offsets.forget(partitions)

    async def tell_lost(self, partitions: list[TopicPartition]) -> None:
        """Tells the user that others may read these already."""
        await self._tell(self._callbacks.on_lost or self._callbacks.on_revoked, partitions)

    async def _drain(
        self, states: list[PartitionState], is_worth_waiting: Callable[[], bool]
    ) -> None:
        """Waits until the user has finished their records, within `drain_timeout_ms`."""
        busy: list[PartitionState] = []
        timeout_ms = self._config.drain_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while is_worth_waiting():
                    busy = [state for state in states if self._fetch_buffer.has_in_hand(state)]
                    if not busy:
                        break
                    self.asked.clear()
                    await self.asked.wait()
                # The user is done with what it commits, and the commit may still be under way: the
                # next owner of the partition must not begin before it.
                await self._offsets.commits.settled()
        except TimeoutError:
            self._feed.emit(
                EventKind.PROCESSING_OVERDUE,
                f"records of {', '.join(str(state.where) for state in busy or states)} were in "
                f"hand for {timeout_ms} ms after the group wanted them back, or the commit of them "
                "was not answered; their next owner reads those again",
            )

    async def _tell(self, callback: Callback | None, partitions: list[TopicPartition]) -> None:
        """Calls the user. An exception is logged and kept, and the rebalance continues."""
        if callback is None:
            return
        self._callback_task = asyncio.current_task()
        try:
            async with asyncio.timeout(self._config.rebalance_timeout_ms / 1000):
                result = callback(partitions)
                if inspect.isawaitable(result):
                    await result
            self.callback_error = None
        except Exception as error:
            name = getattr(callback, "__qualname__", repr(callback))
            self.callback_error = failed = CallbackFailed(f"{name} raised {error!r}")
            self._feed.emit(EventKind.CALLBACK_FAILED, str(failed), failed, raised=error)
            # Its traceback refers to this frame, and this frame to what keeps the error.
            failed.__cause__ = error.with_traceback(None)
        finally:
            self._callback_task = None
