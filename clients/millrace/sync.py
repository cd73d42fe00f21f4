"""The clients without an event loop: for scripts, notebooks and worker processes.

    from millrace.sync import Consumer, Producer

    with Producer("localhost:9092") as producer:
        producer.send("clicks", b"home")            # acked when it returns
        producer.send_many("clicks", pages)         # the fast way

The same settings, results and errors as the async clients, which do the work on a private loop in
a daemon thread. Each call crosses to that thread, so calls that carry many records are the fast
ones. May be used by any number of threads, with or without a running loop of their own (a call
blocks the caller's loop, as any blocking call does). After a fork, make new ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, Unpack

from millrace import admin as _admin
from millrace import consumer as _consumer
from millrace import producer as _producer
from millrace._loop_thread import loop_thread
from millrace._receipts import Receipts
from millrace.admin import (
    ClusterDescription,
    Configs,
    ConfigValue,
    ListedOffset,
    NewTopic,
    TopicDescription,
    TopicOutcome,
)
from millrace.config import ClientOptions, ConsumerOptions, ProducerOptions, Servers
from millrace.consumer import Partition, Start
from millrace.events import ConsumerHealth, ProducerHealth
from millrace.partitioner import Partitioner, by_key
from millrace.records import Headers, Receipt, Record, RecordBatch, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    K = DefaultTypeVar("K", default=bytes)
    V = DefaultTypeVar("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")
T = TypeVar("T")

RECORDS_PER_CROSSING = 500
"""Records that `post` collects, and that iteration takes, per crossing to the loop's thread."""


class _Startable(Protocol):
    async def start(self) -> None: ...
    async def close(self) -> None: ...


class _Crossing:
    """What the three share: a thread to run on, and a life."""

    def __init__(self, client: _Startable) -> None:
        self._life = client
        self._thread = loop_thread()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)

    def _call(self, function: Callable[[], T]) -> T:
        """Runs a plain function on the loop's thread, where the client's state lives."""

        async def call() -> T:
            return function()

        return self._run(call())

    def start(self) -> None:
        """Connects. Raises like the async client's `start`."""
        self._run(self._life.start())

    def close(self) -> None:
        """Disconnects. Raises like the async client's `close`."""
        self._run(self._life.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Producer(_Crossing, Generic[K, V]):
    """`millrace.Producer` for synchronous code."""

    def __init__(
        self,
        servers: Servers = "localhost:9092",
        *,
        key_serializer: Callable[[K], bytes] | None = None,
        value_serializer: Callable[[V], bytes] | None = None,
        partitioner: Partitioner = by_key,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Checks the settings; raises `ConfigError`. Connects to nobody yet."""
        self._producer: _producer.Producer[K, V] = _producer.Producer(
            servers,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            **options,
        )
        super().__init__(self._producer)
        self._posted: list[tuple[tuple[str, V | None], dict[str, Any]]] = []
        self._lock = threading.Lock()

    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Receipt:
        """Sends one record; returns when it is acked. Raises what became of it otherwise."""

        async def send() -> Receipt:
            await self._producer.room()
            return await self._producer.send(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )

        return self._run(send())

    def post(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Takes a record to be sent with others, by the next `flush` or `close` at the latest.

        Blocks when the buffer is full. A failure is raised by `flush` or `close`, or, for a
        record that cannot be sent at all, by the call that hands it over.
        """
        columns = {
            "key": key,
            "partition": partition,
            "headers": headers,
            "timestamp_ms": timestamp_ms,
        }
        with self._lock:
            self._posted.append(((topic, value), columns))
            if len(self._posted) < RECORDS_PER_CROSSING:
                return
        self._hand_over()

    def send_many(
        self,
        topic: str,
        values: Sequence[V | None],
        *,
        keys: Sequence[K | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        partition: int | None = None,
    ) -> Receipts:
        """Sends many records of one topic; returns when all are acked."""

        async def send_many() -> Receipts:
            await self._producer.room()
            return await self._producer.send_many(
                topic,
                values,
                keys=keys,
                headers=headers,
                timestamps_ms=timestamps_ms,
                partition=partition,
            )

        return self._run(send_many())

    def flush(self) -> None:
        """Returns when all that was sent or posted is acked. Raises `DeliveryFailed`."""
        self._hand_over()
        self._run(self._producer.flush())

    def close(self) -> None:
        """Flushes, then disconnects. Raises `DeliveryFailed`."""
        try:
            self._hand_over()
        finally:
            super().close()

    def health(self) -> ProducerHealth:
        """How the producer is doing, now."""
        return self._call(self._producer.health)

    def _hand_over(self) -> None:
        with self._lock:
            posted, self._posted = self._posted, []
            if not posted:
                return

            async def hand_over() -> None:
                for record, columns in posted:
                    await self._producer.room()
                    self._producer.send(*record, **columns)

            # Under the lock, so that records keep the order they were posted in.
            self._run(hand_over())


class Consumer(_Crossing, Generic[K, V]):
    """`millrace.Consumer` for synchronous code."""

    def __init__(
        self,
        servers: Servers = "localhost:9092",
        *topics: str,
        start: Start = "earliest",
        group: None = None,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Checks the settings; raises `ConfigError`. Connects to nobody yet."""
        self._consumer: _consumer.Consumer[K, V] = _consumer.Consumer(
            servers,
            *topics,
            start=start,
            group=group,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **options,
        )
        super().__init__(self._consumer)
        self._ahead: deque[Record[K, V]] = deque()

    def __iter__(self) -> Iterator[Record[K, V]]:
        while True:
            while self._ahead:
                yield self._ahead.popleft()
            self._ahead.extend(self._run(self._consumer.getmany(RECORDS_PER_CROSSING)))

    def getone(self, *, timeout_ms: int | None = None) -> Record[K, V] | None:
        """The next record; None after `timeout_ms` without one."""
        found = self.getmany(1, timeout_ms=timeout_ms)
        return found[0] if found else None

    def getmany(
        self, max_records: int = 500, *, timeout_ms: int | None = None
    ) -> list[Record[K, V]]:
        """From 1 to `max_records` records; an empty list after `timeout_ms` without one."""
        if self._ahead:
            return [self._ahead.popleft() for _ in range(min(max_records, len(self._ahead)))]
        return self._run(self._consumer.getmany(max_records, timeout_ms=timeout_ms))

    def batches(self, *, timeout_ms: int | None = None) -> Iterator[RecordBatch[K, V]]:
        """The records as they came, up to a whole fetch of a partition at a time, not decoded.

        Ends after `timeout_ms` without one.
        """
        batches = self._consumer.batches()

        async def take() -> RecordBatch[K, V]:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await anext(batches)

        while True:
            self._give_back()
            try:
                batch = self._run(take())
            except TimeoutError:
                return
            yield batch

    def assign(self, partitions: Iterable[Partition], *, start: Start | None = None) -> None:
        """Reads exactly these partitions from now on."""
        self._give_back()
        self._call(lambda: self._consumer.assign(partitions, start=start))

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        return self._call(self._consumer.assignment)

    def seek(self, partition: Partition, offset: int) -> None:
        """Goes on at `offset`."""
        self._give_back()
        self._call(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Goes on at the beginning of the log, of all partitions if none is named."""
        self._give_back()
        self._call(lambda: self._consumer.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: Partition) -> None:
        """Goes on at the end of the log, of all partitions if none is named."""
        self._give_back()
        self._call(lambda: self._consumer.seek_to_end(*partitions))

    def seek_to_timestamp(self, time: int | datetime, *partitions: Partition) -> None:
        """Goes on at the first record at or after `time`; of all partitions if none is named."""
        self._give_back()
        self._call(lambda: self._consumer.seek_to_timestamp(time, *partitions))

    def position(self, partition: Partition) -> int:
        """Offset of the next record that will be handed out."""
        self._give_back()
        return self._run(self._consumer.position(partition))

    def pause(self, *partitions: Partition) -> None:
        """Hands out nothing of these partitions until `resume`; all if none is named."""
        self._give_back()
        self._call(lambda: self._consumer.pause(*partitions))

    def resume(self, *partitions: Partition) -> None:
        """Undoes `pause`; for all partitions if none is named."""
        self._call(lambda: self._consumer.resume(*partitions))

    def beginning_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """First offset in the log, of each partition named, or of all that are read."""
        return self._run(self._consumer.beginning_offsets(*partitions))

    def end_offsets(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """Offset of the next record to be written, exclusive end of what can be read."""
        return self._run(self._consumer.end_offsets(*partitions))

    def offsets_for_times(
        self, times: Mapping[Partition, int | datetime]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """`(offset, timestamp_ms)` of the first record at or after each time; None for none."""
        return self._run(self._consumer.offsets_for_times(times))

    def lag(self, *partitions: Partition) -> dict[TopicPartition, int]:
        """How many offsets each partition's position is behind the end; all if none is named."""
        self._give_back()
        return self._run(self._consumer.lag(*partitions))

    def health(self) -> ConsumerHealth:
        """How the consumer is doing, now."""
        return self._call(self._consumer.health)

    def _give_back(self) -> None:
        """Undoes the crossing's reading ahead: positions are those of what was handed out."""
        if not self._ahead:
            return
        first = {record.topic_partition: record.offset for record in reversed(self._ahead)}
        self._ahead.clear()

        def seek() -> None:
            for where, offset in first.items():
                self._consumer.seek(where, offset)

        self._call(seek)


class Admin(_Crossing):
    """`millrace.Admin` for synchronous code."""

    def __init__(
        self, servers: Servers = "localhost:9092", **options: Unpack[ClientOptions]
    ) -> None:
        """Checks the settings; raises `ConfigError`. Connects to nobody yet."""
        self._admin = _admin.Admin(servers, **options)
        super().__init__(self._admin)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Configs | None = None,
    ) -> int:
        """Creates a topic; returns how many partitions it has."""
        return self._run(
            self._admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        )

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> list[TopicOutcome[int]]:
        """Creates each topic for itself; the value is its number of partitions."""
        return self._run(self._admin.create_topics(topics, validate_only=validate_only))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records."""
        self._run(self._admin.delete_topic(name))

    def delete_topics(self, names: Iterable[str]) -> list[TopicOutcome[bool]]:
        """Deletes topics with all their records."""
        return self._run(self._admin.delete_topics(names))

    def create_partitions(self, name: str, partitions: int) -> None:
        """Widens a topic to `partitions`."""
        self._run(self._admin.create_partitions(name, partitions))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        return self._run(self._admin.list_topics(internal=internal))

    def describe_topic(self, name: str) -> TopicDescription:
        """One topic."""
        return self._run(self._admin.describe_topic(name))

    def describe_topics(self, names: Iterable[str]) -> list[TopicOutcome[TopicDescription]]:
        """The topics named, in this order."""
        return self._run(self._admin.describe_topics(names))

    def describe_configs(self, name: str) -> dict[str, ConfigValue]:
        """Every setting of a topic that is in force, by name."""
        return self._run(self._admin.describe_configs(name))

    def alter_configs(self, name: str, configs: Configs, *, validate_only: bool = False) -> None:
        """Changes settings of a topic, all or none; those not named stay."""
        self._run(self._admin.alter_configs(name, configs, validate_only=validate_only))

    def list_offsets(
        self, questions: Mapping[TopicPartition | tuple[str, int], str | int]
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset for each partition: "earliest", "latest", "max_timestamp", or a time in ms."""
        return self._run(self._admin.list_offsets(questions))

    def describe_cluster(self) -> ClusterDescription:
        """The brokers, and which of them takes changes."""
        return self._run(self._admin.describe_cluster())
