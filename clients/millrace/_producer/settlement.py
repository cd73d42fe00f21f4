"""What follows when batches are settled: room is given back, callers wake up, failures are kept.

Owns the failures that no caller has seen, until `flush` or `close` raises them.
"""

from __future__ import annotations

from collections import deque

from millrace._producer.accumulator import Accumulator
from millrace._producer.batch import Batch
from millrace._producer.counters import ProducerCounters
from millrace._producer.produce_queue import ProduceQueue
from millrace._producer.waiters import Waiters
from millrace._wording import counted
from millrace.errors import DeliveryFailed, MillraceError
from millrace.events import EventFeed, EventKind

FAILURES_KEPT = 100
"""Failed batches remembered for the next `flush`; more are only counted."""


class Settlement:
    """The outcomes of one producer's batches. `last_error` is of a batch or of an attempt."""

    def __init__(
        self,
        accumulator: Accumulator,
        waiters: Waiters,
        *,
        counters: ProducerCounters,
        feed: EventFeed,
    ) -> None:
        self.last_error: MillraceError | None = None
        self._accumulator = accumulator
        self._waiters = waiters
        self._counters = counters
        self._feed = feed
        self._unobserved: deque[Batch] = deque(maxlen=FAILURES_KEPT)

    def settle(self, settled: list[Batch]) -> None:
        """Gives the room of settled batches back, and fills it with what waits for it."""
        accumulator = self._accumulator
        accumulator.release(settled)
        self._note_outcomes(settled)
        if accumulator.backlog is not None:
            accumulator.feed()
            self.settle_refused()
            if accumulator.needs_wakeup:
                self._waiters.sender_wakeup.set()
        if accumulator.has_room:
            self._waiters.wake_room()

    def settle_refused(self) -> None:
        """Settles what the accumulator refused."""
        self._note_outcomes(self._accumulator.refused())

    async def until_room(self) -> None:
        """Waits until there is room for any record."""
        while not self._accumulator.has_room:
            await self._waiters.room()

    async def flush(self, queue: ProduceQueue) -> None:
        """Has everything sent, and waits until all that was taken before is settled."""
        if self._accumulator.backlog is not None:
            await self.until_room()
        for unassigned in self._accumulator.unassigned_batches():
            await self._waiters.settled(unassigned)
        self._accumulator.seal_all()
        self._waiters.sender_wakeup.set()
        unsettled = queue.pending()
        while unsettled:
            batch = unsettled.pop()
            await self._waiters.settled(batch)
            if batch.moved is not None:
                unsettled += batch.moved.batches()

    def raise_unobserved(self) -> None:
        """Raises `DeliveryFailed` for the failures since the last call that no caller awaited."""
        failed = [batch for batch in self._unobserved if not batch.observed]
        self._unobserved.clear()
        errors = tuple(batch.error for batch in failed if batch.error is not None)
        if errors:
            count = sum(batch.count for batch in failed)
            raise DeliveryFailed(
                f"{counted(count, 'record')} in {counted(len(failed), 'batch', 'batches')} could "
                f"not be delivered, and the sends were not awaited: {errors[0]}",
                errors,
            ) from errors[0]

    def _note_outcomes(self, settled: list[Batch]) -> None:
        for batch in settled:
            self._counters.on_settled(batch)
            if batch.error is not None:
                self._note_failure(batch, batch.error)
        self._waiters.wake_settled(settled)

    def _note_failure(self, batch: Batch, error: MillraceError) -> None:
        self.last_error = error
        if not batch.observed:
            self._unobserved.append(batch)
        failure = f"{counted(batch.count, 'record')} failed: {error}"
        self._feed.emit(EventKind.DELIVERY_FAILED, failure, error)
