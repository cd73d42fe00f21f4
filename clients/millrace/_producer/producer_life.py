"""The life of a producer: its start, its flushes and its end, and its state meanwhile.

Owns the task that talks to brokers, and the errors of a producer that does not run. Does not know
how records are taken: that is `millrace.producer`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from millrace._background_tasks import BackgroundTasks
from millrace._clock import monotonic_ms
from millrace._cluster.cluster import Cluster
from millrace._kafka_methods import KafkaMethodHints
from millrace._owner import Owner, warn_if_open
from millrace._producer.accumulator import Accumulator
from millrace._producer.counters import ProducerCounters
from millrace._producer.hot_batches import HotBatches
from millrace._producer.produce_queue import ProduceQueue
from millrace._producer.sender import Sender
from millrace._producer.settlement import Settlement
from millrace._producer.waiters import Waiters
from millrace._wording import counted
from millrace.config import ProducerConfig
from millrace.errors import (
    ClientFailed,
    Closed,
    DeliveryFailed,
    MillraceError,
)
from millrace.events import Event, EventFeed, EventKind, ProducerHealth, State
from millrace.metrics import ProducerMetrics


class ProducerLife(KafkaMethodHints):
    """NEW -> RUNNING -> CLOSING -> CLOSED, or FAILED if its task dies."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        feed: EventFeed,
        *,
        accumulator: Accumulator,
        produce_queue: ProduceQueue,
        waiters: Waiters,
    ) -> None:
        self._feed = feed
        self._cluster = cluster
        self._produce_queue = produce_queue
        self._waiters = waiters
        self._accumulator = accumulator
        self._client_id = config.client_id
        self._counters = counters = ProducerCounters()
        self._settlement = Settlement(accumulator, waiters, counters=counters, feed=feed)
        self._sender = Sender(
            cluster,
            produce_queue,
            accumulator,
            config,
            waiters=waiters,
            settlement=self._settlement,
            counters=counters,
            feed=feed,
        )
        self.owner = waiters.owner = Owner("producer")
        self._state = State.NEW
        self._running = False
        self._cause: BaseException | None = None
        self._unsent_count = 0
        self._hot_batches = HotBatches()
        self._at_once: asyncio.Future[None] | None = None
        self._tasks: BackgroundTasks | None = None

    async def start(self) -> None:
        """Connects. Raises `ConnectionFailed` when none of the servers answers."""
        if self._state is not State.NEW:
            raise Closed(f"start: this producer is {self._state}; make a new one")
        try:
            await self._cluster.start()
        except BaseException:
            await self._cluster.close()
            raise
        self._hot_batches.loop = loop = asyncio.get_running_loop()
        self._open_gate = loop.create_future()
        self._open_gate.set_result(None)
        self._state, self._running = State.RUNNING, True
        self.owner.take()
        self._tasks = BackgroundTasks(self._on_task_failed)
        self._sender.start(self._tasks)

    async def close(self) -> None:
        """Flushes, then disconnects; sends are refused from the start of it on.

        Takes at most `delivery_timeout_ms`. Raises `DeliveryFailed` like `flush`. Cancelling it
        gives up the flush, and what is not acked fails with `Closed`.
        """
        if self._state in (State.CLOSED, State.CLOSING):
            return
        self.owner.check()
        self.owner.release()
        was_running = self._running
        self._stop_taking()
        if self._state is not State.FAILED:
            self._state = State.CLOSING
        try:
            if was_running:
                await self._settlement.flush(self._produce_queue)
        finally:
            await self._stop()
        self._settlement.raise_unobserved()

    async def _stop(self) -> None:
        if self._state is not State.FAILED:
            self._state = State.CLOSED
        try:
            if self._tasks is not None:
                await self._tasks.end()
        finally:
            self._give_up(Closed("the producer was closed before the record was acked"))
            await self._cluster.close()
            self._feed.emit(EventKind.CLOSED, "closed")
            self._feed.end()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except DeliveryFailed as failed:
            if error is None:
                raise
            error.add_note(f"and the producer: {failed}")

    async def flush(self) -> None:
        """Sends what lingers, and returns when all that was sent so far is acked or has failed.

        Raises `DeliveryFailed` for records that failed since the last `flush` and were not awaited.
        """
        self._check_running()
        await self._settlement.flush(self._produce_queue)
        self._settlement.raise_unobserved()

    def health(self) -> ProducerHealth:
        """The state of the producer at this moment; costs little."""
        opened = [at for _, at in self._accumulator.unassigned_topics(monotonic_ms())]
        oldest = self._produce_queue.oldest_opened_ms()
        if oldest is not None:
            opened.append(oldest)
        return ProducerHealth(
            state=self._state,
            last_error=self._settlement.last_error,
            buffered_bytes=self._accumulator.buffered_bytes,
            buffered_records=self._accumulator.buffered_records,
            in_flight_requests=self._produce_queue.in_flight_requests,
            oldest_ms=monotonic_ms() - min(opened) if opened else 0,
            failed_records=self._counters.failed_records,
        )

    def metrics(self) -> ProducerMetrics:
        """The counters since the start, and the gauges now. Costs little, in any thread.

        Another thread reads the numbers one after the other while the producer goes on, so two of
        them may be of different moments. Each counter only grows.
        """
        counters = self._counters
        return ProducerMetrics(
            client_id=self._client_id,
            acked_records=counters.acked_records,
            acked_bytes=counters.acked_bytes,
            acked_batches=counters.acked_batches,
            failed_records=counters.failed_records,
            retried_batches=counters.retried_batches,
            produce_requests=counters.produce_requests,
            produce_responses=counters.produce_responses,
            failed_produce_requests=counters.failed_produce_requests,
            produce_latency_ms=counters.produce_latency_ms,
            buffered_records=self._accumulator.buffered_records,
            buffered_bytes=self._accumulator.buffered_bytes,
            in_flight_requests=self._produce_queue.in_flight_requests,
        )

    def events(self) -> AsyncIterator[Event]:
        """The events from now on, until the producer is closed."""
        return self._feed.listen()

    def __del__(self) -> None:
        warn_if_open(self, self.left_behind())

    def left_behind(self, posted: int = 0) -> str:
        """What a producer that is not closed leaves behind, for the report of it.

        `posted` are records that it was to be given.
        """
        count = posted
        if hasattr(self, "_accumulator"):
            count += self._unsent_count or self._accumulator.buffered_records
        if not count:
            return ""
        return f": {counted(count, 'record')} that it was given will not be sent"

    # Inside

    def _check_running(self) -> None:
        """Raises unless the producer runs, in the loop of the caller."""
        if not self._running:
            raise self._not_running()
        self.owner.check()

    def _stop_taking(self) -> None:
        self._running = False
        self._at_once = None
        self._hot_batches.batches.clear()

    def _give_up(self, error: MillraceError) -> None:
        self._settlement.settle(self._accumulator.reject_all(error))
        self._settlement.settle(self._produce_queue.fail_all(error))
        self._waiters.wake_room()

    def _on_task_failed(self, cause: BaseException | None) -> None:
        if self._state in (State.CLOSED, State.FAILED):
            return
        self._cause = cause
        if cause is None:
            # The loop has ended. `close` may still be called, or was forgotten.
            self._unsent_count = self._accumulator.buffered_records
        else:
            self.owner.release()
        self._stop_taking()
        self._state = State.FAILED
        error = self._not_running()
        self._feed.emit(EventKind.FAILED, str(error), error)
        self._give_up(error)

    def _not_running(self) -> MillraceError:
        if self._state is State.NEW:
            return Closed("the producer was not started: use `async with`, or await start()")
        if self._state is State.FAILED:
            why = (
                "its event loop ended; use a producer in the loop that started it"
                if self._cause is None
                else f"its task died: {self._cause!r}; make a new one"
            )
            error = ClientFailed(f"the producer stopped: {why}")
            error.__cause__ = self._cause
            return error
        return Closed("the producer is closed")
