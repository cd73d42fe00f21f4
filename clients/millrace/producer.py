"""The producer: records in, acks out.

Owns the public calls, serialization, the waits, and the task that talks to brokers. What is sent
when is decided by `accumulator` and `produce_queue`, which are pure.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from millrace._cluster.cluster import Cluster
from millrace._cluster.security import security
from millrace._producer.accumulator import Accumulator
from millrace._producer.columns import (
    check_topic,
    checked_headers,
    checked_partition,
)
from millrace._producer.produce_queue import ProduceQueue
from millrace._producer.producer_life import ProducerLife
from millrace._producer.receipts import Deliveries, Delivery
from millrace._producer.record_input import RecordInput
from millrace._producer.waiters import Waiters
from millrace.config import ProducerConfig, ProducerOptions, Servers, configure, parse_servers
from millrace.events import EventFeed
from millrace.partitioner import Partitioner, by_key
from millrace_protocol.records import RECORD_OVERHEAD_BYTES, Headers

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    # What a serializer takes that does not say so, as a lambda does not, may be anything.
    GivenK = TypeVar("GivenK", default=Any)
    GivenV = TypeVar("GivenV", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

_TURNS_PER_BATCH = 4
"""Turns of the loop from one batch's answer to the next batch's departure.

A loop around `send` that gave up fewer per batch would leave the broker idle, fill the buffer, and
wait for all of it at the end.
"""


class Producer(ProducerLife, Generic[K, V]):
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

    @overload
    def __init__(
        self: Producer[bytes, bytes],
        servers: Servers = ...,
        *,
        key_serializer: None = None,
        value_serializer: None = None,
        partitioner: Partitioner = ...,
        rng: random.Random | None = ...,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[bytes, GivenV],
        servers: Servers = ...,
        *,
        key_serializer: None = None,
        value_serializer: Callable[[GivenV], bytes],
        partitioner: Partitioner = ...,
        rng: random.Random | None = ...,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[GivenK, bytes],
        servers: Servers = ...,
        *,
        key_serializer: Callable[[GivenK], bytes],
        value_serializer: None = None,
        partitioner: Partitioner = ...,
        rng: random.Random | None = ...,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[GivenK, GivenV],
        servers: Servers = ...,
        *,
        key_serializer: Callable[[GivenK], bytes],
        value_serializer: Callable[[GivenV], bytes],
        partitioner: Partitioner = ...,
        rng: random.Random | None = ...,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    def __init__(
        self,
        servers: Servers = "localhost:9092",
        *,
        key_serializer: Callable[[Any], bytes] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
        partitioner: Partitioner = by_key,
        rng: random.Random | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Checks the settings; raises `ConfigError`. Opens no connection yet."""
        config: ProducerConfig = configure(ProducerConfig, options)
        feed, waiters = EventFeed("producer"), Waiters()
        rng = rng or random.Random()
        produce_queue = ProduceQueue(config, rng=rng)
        super().__init__(
            config,
            Cluster(
                parse_servers(servers),
                config,
                feed=feed,
                **security(servers, config),
                rng=rng,
            ),
            feed,
            accumulator=Accumulator(
                config, produce_queue, owner=waiters, rng=rng, partitioner=partitioner
            ),
            produce_queue=produce_queue,
            waiters=waiters,
        )
        self._input = RecordInput(key_serializer, value_serializer)
        self._hot = self._hot_batches.batches
        self._has_own_partitioner = partitioner is not by_key
        self._may_be_hot = not (self._input.serializes or self._has_own_partitioner)

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
        try:
            batch = self._hot[topic]
        except KeyError:
            return self._send_any(topic, value, key, partition, headers, timestamp_ms)
        if (
            type(value) is bytes
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
                delivery = Delivery()
                delivery._batch = batch
                delivery._index = len(values) - 1
                return delivery
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
        self._check_running()
        is_plain = self._may_be_hot and not (
            headers or key is not None or partition is not None or timestamp_ms is not None
        )
        if timestamp_ms is None:
            timestamp_ms = self._hot_batches.now_ms()
        else:
            timestamp_ms = self._input.timestamp_ms(timestamp_ms)
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
        return Delivery.of(batch, len(batch.values) - 1)

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
        self._check_running()
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
        self._check_running()
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
            count = self._cluster.metadata.partition_count(topic)
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
        self.owner.check()
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
        self._check_running()
        count = self._cluster.metadata.partition_count(topic)
        if count is None:
            check_topic(topic)
            await self._cluster.await_topics([topic])
            count = self._cluster.metadata.partition_count(topic)
            assert count is not None
        return count
