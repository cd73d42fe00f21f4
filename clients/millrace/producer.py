"""The producer: records in, acks out.

Owns the public calls, serialization, the waits, and the task that talks to brokers. What is sent
when is decided by `accumulator` and `produce_queue`, which are pure.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack

from millrace._background_tasks import BackgroundTasks
from millrace._clock import monotonic_ms
from millrace._cluster.cluster import Cluster
from millrace._producer.accumulator import Accumulator
from millrace._producer.columns import (
    check_topic,
    checked_headers,
    checked_partition,
    checked_timestamp_ms,
)
from millrace._producer.hot_batches import HotBatches
from millrace._producer.produce_queue import ProduceQueue
from millrace._producer.receipts import Deliveries, Delivery
from millrace._producer.record_input import RecordInput
from millrace._producer.sender import Sender
from millrace._producer.settlement import Settlement
from millrace._producer.waiters import Waiters
from millrace.config import ProducerConfig, ProducerOptions, Servers, configure, parse_servers
from millrace.errors import (
    ClientFailed,
    Closed,
    DeliveryFailed,
    MillraceError,
)
from millrace.events import Event, EventFeed, EventKind, ProducerHealth, State
from millrace.partitioner import Partitioner, by_key
from millrace_protocol.records import RECORD_OVERHEAD_BYTES, Headers

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

_TURNS_PER_BATCH = 4
"""Turns of the loop from one batch's answer to the next batch's departure.

A loop around `send` that gave up fewer per batch would leave the broker idle, fill the buffer, and
wait for all of it at the end.
"""


class Producer(Generic[K, V]):
    """Sends records to topics, in order per partition, without duplicates by default.

        async with Producer("localhost:9092") as producer:
            receipt = await producer.send("clicks", b"home", key=b"user-7")   # acked
            for page in pages:
                await producer.room()                                         # back-pressure
                producer.send("clicks", page)                                 # not awaited
            await producer.flush()                                            # all acked

    What `send` and `send_many` are given is taken when they return; what they return may be
    awaited for the acks. `room` is the way to wait before the next call.

    Keys and values are bytes, or what the serializers take. Settings are those of
    `config.ProducerConfig`. Made anywhere, started inside a running loop by `start` or
    `async with`. NEW -> RUNNING -> CLOSING -> CLOSED, or FAILED if its task dies.
    """

    def __init__(
        self,
        servers: Servers = "localhost:9092",
        *,
        key_serializer: Callable[[K], bytes] | None = None,
        value_serializer: Callable[[V], bytes] | None = None,
        partitioner: Partitioner = by_key,
        rng: random.Random | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Checks the settings; raises `ConfigError`. Opens no connection yet."""
        self._config: ProducerConfig = configure(ProducerConfig, options)
        self._feed = EventFeed("producer")
        rng = rng or random.Random()
        self._cluster = Cluster(parse_servers(servers), self._config, feed=self._feed, rng=rng)
        self._produce_queue = ProduceQueue(self._config, rng=rng)
        self._waiters = Waiters()
        self._accumulator = Accumulator(
            self._config, self._produce_queue, owner=self._waiters, rng=rng, partitioner=partitioner
        )
        self._settlement = Settlement(self._accumulator, self._waiters, feed=self._feed)
        self._sender = Sender(
            self._cluster,
            self._produce_queue,
            self._accumulator,
            self._config,
            waiters=self._waiters,
            settlement=self._settlement,
            feed=self._feed,
        )
        self._input = RecordInput(key_serializer, value_serializer)
        self._state = State.NEW
        self._running = False
        self._cause: BaseException | None = None
        self._hot_batches = HotBatches()
        self._hot = self._hot_batches.batches
        self._has_own_partitioner = partitioner is not by_key
        self._may_be_hot = not (self._input.serializes or self._has_own_partitioner)
        self._at_once: asyncio.Future[None] | None = None
        self._tasks: BackgroundTasks | None = None

    # Life

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
        self._tasks = BackgroundTasks(self._on_task_failed)
        self._sender.start(self._tasks)

    async def close(self) -> None:
        """Flushes, then disconnects; sends are refused from the start of it on.

        Takes at most `delivery_timeout_ms`. Raises `DeliveryFailed` like `flush`. Cancelling it
        gives up the flush, and what is not acked fails with `Closed`.
        """
        if self._state in (State.CLOSED, State.CLOSING):
            return
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
        if self._tasks is not None:
            await self._tasks.end()
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

    # Records

    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Takes a record at once; `await` what it returns for the `Receipt`, given when acked.

        Not awaited, the record waits up to `linger_ms` for others to travel with, and a failure
        is raised by the next `flush` or `close`. Cancelling the await gives up the wait, not the
        record. `timestamp_ms` is since the epoch, now if not given.

        Raises, and then took nothing: `BufferFull`: `await producer.room()` before `send`, or
        await the send; `MessageTooLarge`; `UnknownTopicOrPartition` for a partition that is not
        there; `TypeError` for what is not bytes; `Closed` or `ClientFailed`.
        """
        # Why flat: see `hot_batches`.
        batch = self._hot.get(topic)
        if (
            batch is not None
            and type(value) is bytes
            and key is None
            and partition is None
            and timestamp_ms is None
            and not headers
        ):
            accumulator = self._accumulator
            size = len(value) + RECORD_OVERHEAD_BYTES
            batch_bytes = batch.size_bytes + size
            buffered_bytes = accumulator.buffered_bytes + size
            if batch_bytes <= batch.limit_bytes and buffered_bytes <= accumulator.roomy_bytes:
                batch.size_bytes = batch_bytes
                accumulator.buffered_bytes = buffered_bytes
                values = batch.values
                values.append(value)
                return Delivery(batch, len(values) - 1)
        return self._send_any(topic, value, key, partition, headers, timestamp_ms)

    def _send_any(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> Delivery:
        """`send`, for any record."""
        if not self._running:
            raise self._not_running()
        is_plain = self._may_be_hot and not (
            headers or key is not None or partition is not None or timestamp_ms is not None
        )
        if timestamp_ms is None:
            timestamp_ms = self._hot_batches.now_ms()
        else:
            timestamp_ms = checked_timestamp_ms("timestamp_ms", timestamp_ms)
        if partition is not None:
            partition = checked_partition(partition)
        if headers:
            headers = checked_headers(headers)
        key, value = self._input.key(key), self._input.value(value)
        self._hot.pop(topic, None)
        accumulator = self._accumulator
        batch = accumulator.append(topic, partition, key, value, headers, timestamp_ms)
        if is_plain and batch.is_plain and batch.partition >= 0:
            self._hot[topic] = batch
        self._wake_sender()
        return Delivery(batch, len(batch.values) - 1)

    def send_many(
        self,
        topic: str,
        values: Sequence[V | None],
        *,
        keys: Sequence[K | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """Takes many records of one topic at once; `await` what it returns for their `Receipts`.

        Columns are as long as `values`. Receipts are in the order of `values`. Any number is
        taken: what is more than the buffer holds is put into it as room comes, and until then
        `room` waits. Awaiting raises the error of the first batch that failed, once all are
        settled; a record that is too large fails alone. Cancelling the await gives up the wait,
        not the records. Not awaited, failures are raised by the next `flush` or `close`.

        Raises, and then took nothing: `BufferFull` while records of an earlier call wait for
        room: `await producer.room()` before `send_many`; `UnknownTopicOrPartition`, `TypeError`
        and `ValueError` for arguments that are wrong; `Closed` or `ClientFailed`.
        """
        if not self._running:
            raise self._not_running()
        columns = self._input.columns(
            values,
            keys=keys,
            headers=headers,
            timestamps_ms=timestamps_ms,
            now_ms=self._hot_batches.now_ms(),
        )
        if partition is not None:
            partition = checked_partition(partition)
        self._hot.pop(topic, None)
        deliveries = self._accumulator.take(topic, partition, columns)
        self._settlement.settle_refused()
        self._wake_sender()
        return deliveries

    def send_arrow(
        self,
        topic: str,
        values: pa.Array,
        *,
        keys: pa.Array | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """`send_many` of Arrow columns, without an object per record; needs `millrace[arrow]`.

        `values` and `keys`, as long as `values`, are arrays of `binary` or `string`, whose UTF-8
        is sent; null is null. They are sent as they are: no serializer is asked. All records have
        the time of the call, and travel in batches of their own, unless they are too few for half
        a batch. Where the producer has to choose partitions by keys, or does not know the topic
        yet, objects are made after all: `partition_count` learns a topic.

        Raises what `send_many` raises, and `ImportError` without pyarrow.
        """
        if not self._running:
            raise self._not_running()
        try:
            from millrace._producer.arrow_columns import ArrowColumns
        except ImportError as error:
            raise ImportError(
                "send_arrow() needs pyarrow and numpy: pip install 'millrace[arrow]'"
            ) from error
        columns = ArrowColumns.of(values, keys, self._hot_batches.now_ms())
        if partition is not None:
            partition = checked_partition(partition)
        chooses = partition is None and (columns.keys is not None or self._has_own_partitioner)
        accumulator = self._accumulator
        if not accumulator.knows(topic):
            count = self._cluster.partition_count(topic)
            if count is not None:
                self._settlement.settle(accumulator.assign(topic, count))
        self._hot.pop(topic, None)
        deliveries = accumulator.take(topic, partition, columns.lists() if chooses else columns)
        self._settlement.settle_refused()
        self._wake_sender()
        return deliveries

    def _wake_sender(self) -> None:
        """Wakes the sender, and closes the gate, where what was taken asks for it."""
        accumulator = self._accumulator
        if accumulator.needs_wakeup:
            self._at_once = None
            self._waiters.sender_wakeup.set()
        elif not accumulator.has_room:
            self._at_once = None

    def room(self) -> Awaitable[None]:
        """Returns when the next `send` will not raise `BufferFull`: at once, as a rule.

        Lets other tasks run whenever a batch was begun, so that a loop around `send` cannot
        starve them, nor the task that sends.
        """
        # Awaiting a future that is done costs 20 ns, and running a coroutine 100.
        return self._at_once or self._pass_gate()

    async def _pass_gate(self) -> None:
        for _ in range(_TURNS_PER_BATCH):
            await asyncio.sleep(0)
        await self._settlement.until_room()
        if not self._running:
            raise self._not_running()
        self._at_once = self._open_gate

    async def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; asks a broker where nothing is known of it yet.

        Raises `UnknownTopicOrPartition`, and `ConnectionFailed` when no broker answers.
        """
        if not self._running:
            raise self._not_running()
        count = self._cluster.partition_count(topic)
        if count is None:
            check_topic(topic)
            await self._cluster.await_topics([topic])
            count = self._cluster.partition_count(topic)
            assert count is not None
        return count

    async def flush(self) -> None:
        """Sends what lingers, and returns when all that was sent so far is acked or has failed.

        Raises `DeliveryFailed` for records that failed since the last `flush` and were not awaited.
        """
        if not self._running:
            raise self._not_running()
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
            failed_records=self._settlement.failed_records,
        )

    def events(self) -> AsyncIterator[Event]:
        """The events from now on, until the producer is closed."""
        return self._feed.listen()

    # The end

    def _stop_taking(self) -> None:
        self._running = False
        self._at_once = None
        self._hot.clear()

    def _give_up(self, error: MillraceError) -> None:
        self._settlement.settle(self._accumulator.reject_all(error))
        self._settlement.settle(self._produce_queue.fail_all(error))
        self._waiters.wake_room()

    def _on_task_failed(self, cause: BaseException | None) -> None:
        if self._state in (State.CLOSED, State.FAILED):
            return
        self._cause = cause
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
