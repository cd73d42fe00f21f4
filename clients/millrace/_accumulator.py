"""Where a producer's records become batches.

Owns the byte bound, the filling of batches, the choice of partition, and the records of topics
whose partitions are not known yet. What leaves when is `_outbox`'s. Knows no event loop and no
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat

from millrace._backoff import Rng
from millrace._batch import Batch, Delivery, Owner
from millrace._outbox import Outbox
from millrace._partition_queue import PartitionQueue
from millrace.config import ProducerConfig
from millrace.errors import (
    BufferFull,
    MessageTooLarge,
    MillraceError,
    UnknownTopicOrPartition,
)
from millrace.partitioner import Partitioner, by_key
from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import (
    HEADER_SIZE,
    RECORD_OVERHEAD_BYTES,
    Headers,
    record_size_max,
)

ANTECHAMBER = -1
"""The partition number of a batch whose records have none yet."""
_FIRST_GUESS = 512
_UnassignedRecord = tuple[int | None, bytes | None, bytes | None, Headers, int, int]
"""`(partition, key, value, headers, timestamp_ms, size)`."""
Run = tuple[Batch, int, int]
"""Records that lie together: `(batch, first index, count)`."""


class _Lane:
    """One topic: its partitions, and the one that records without a key go to for now."""

    __slots__ = ("queues", "sticky")

    def __init__(self, queues: list[PartitionQueue], sticky: PartitionQueue) -> None:
        self.queues = queues
        self.sticky = sticky


@dataclass(slots=True)
class _Unassigned:
    """The records of a topic that nothing is known of, in order."""

    antechamber: Batch
    records: list[tuple[Delivery, _UnassignedRecord]] = field(default_factory=list)


class Accumulator:
    """The records of one producer that are not settled; `buffered_bytes <= buffer_bytes`.

    `attention` is set when `Outbox.drain` may have something to do that it had not before;
    `sealed_count` counts batches that were closed because they were full.
    """

    def __init__(
        self,
        config: ProducerConfig,
        outbox: Outbox,
        *,
        owner: Owner,
        rng: Rng,
        partitioner: Partitioner | None = None,
    ) -> None:
        self.buffered_bytes = 0
        self.attention = False
        self.sealed_count = 0
        self._config = config
        self._outbox = outbox
        self._owner = owner
        self._rng = rng
        self._partitioner = None if partitioner is by_key else partitioner
        self._batch_bytes = config.batch_bytes
        self._buffer_bytes = config.buffer_bytes
        self._roomy_bytes = config.buffer_bytes - config.max_request_bytes
        self._lanes: dict[str, _Lane] = {}
        self._unassigned: dict[str, _Unassigned] = {}
        self._number = 0

    @property
    def buffered_records(self) -> int:
        """How many records are not settled; counts batches, so it is not for each send."""
        batches = (*self._outbox.pending(), *self.antechambers())
        return sum(batch.record_count for batch in batches)

    @property
    def has_room(self) -> bool:
        """Whether any record that is allowed at all would be taken."""
        return self.buffered_bytes <= self._roomy_bytes

    @property
    def has_own_partitioner(self) -> bool:
        """Whether a record without a key may be bound to a partition."""
        return self._partitioner is not None

    def append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> Delivery:
        """Takes one record.

        Raises `BufferFull`, `MessageTooLarge`, or `UnknownTopicOrPartition` for a partition that
        is not there; then it took nothing.
        """
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size = record_size_max(key, value, headers)
        buffered = self.buffered_bytes + size
        if buffered > self._buffer_bytes:
            raise self._buffer_full(size)
        if size > self._batch_bytes:
            self._check_size(size)
        lane = self._lanes.get(topic)
        if lane is None:
            record = (partition, key, value, headers, timestamp_ms, size)
            return self._append_unassigned(topic, record)
        if partition is None and (key is not None or self._partitioner is not None):
            partition = self._choose(lane, topic, key)
        queue = lane.sticky if partition is None else self._queue_at(lane, topic, partition)
        batch = queue.open
        if batch is None or batch.size_bytes + size > self._batch_bytes:
            batch = self._next_batch(lane, queue, size, bound=partition is not None)
        if key is not None or batch.keys is not None:
            batch.add_key(key)
        if headers or batch.headers is not None:
            batch.add_headers(headers)
        values = batch.values
        index = len(values)
        values.append(value)
        batch.timestamps_ms.append(timestamp_ms)
        batch.size_bytes += size
        self.buffered_bytes = buffered
        return Delivery(batch, index)

    def extend(
        self,
        topic: str,
        partition: int | None,
        keys: Sequence[bytes | None] | None,
        values: Sequence[bytes | None],
        headers: Sequence[Headers] | None,
        timestamps_ms: Sequence[int] | int,
        start: int,
    ) -> list[Run]:
        """Takes `values[start:]` and what belongs to them, as far as there is room.

        For records of one partition, or without keys: whole slices go into batches. The topic is
        known. Raises `MessageTooLarge` for a record that cannot be taken at all.
        """
        lane = self._lanes[topic]
        queue = lane.sticky if partition is None else self._queue_at(lane, topic, partition)
        runs: list[Run] = []
        guess = _FIRST_GUESS
        while start < len(values):
            batch = queue.open
            if batch is None or batch.size_bytes + RECORD_OVERHEAD_BYTES > self._batch_bytes:
                batch = self._next_batch(
                    lane, queue, RECORD_OVERHEAD_BYTES, bound=partition is not None
                )
            free = self._buffer_bytes - self.buffered_bytes
            room = min(self._batch_bytes - batch.size_bytes, free)
            count = min(guess, len(values) - start)
            size = _size_of(keys, values, headers, start, count)
            while size > room and count > 1:
                count = max(1, min(count // 2, count * room // size))
                size = _size_of(keys, values, headers, start, count)
            if size > self._batch_bytes:
                self._check_size(size)
            if size > free:
                break
            if size > room and batch.values:
                batch = self._next_batch(lane, queue, size, bound=partition is not None)
            first = len(batch.values)
            _extend_columns(batch, keys, values, headers, timestamps_ms, start, start + count)
            batch.size_bytes += size
            self.buffered_bytes += size
            runs.append((batch, first, count))
            start += count
            guess = max(1, (self._batch_bytes - batch.size_bytes) * count // size)
            if guess == 1:
                guess = max(1, self._batch_bytes * count // size)
            queue = lane.sticky if partition is None else queue
        return runs

    def partition(
        self, topic: str, keys: Sequence[bytes | None] | None, count: int
    ) -> dict[int | None, list[int]]:
        """Which of `count` records go to which partition; None: to any. The topic is known."""
        lane = self._lanes[topic]
        groups: dict[int | None, list[int]] = {}
        if keys is None:
            keys = [None] * count
        chosen = {key: self._choose(lane, topic, key) for key in set(keys)}
        for index, key in enumerate(keys):
            partition = chosen[key]
            if partition in groups:
                groups[partition].append(index)
            else:
                groups[partition] = [index]
        for partition in groups:
            if partition is not None:
                self._queue_at(lane, topic, partition)
        return groups

    def knows(self, topic: str) -> bool:
        """Whether the topic's partitions are known."""
        return topic in self._lanes

    # Topics

    def assign(self, topic: str, partition_count: int) -> list[Batch]:
        """The topic has so many partitions: its records can be put into batches.

        Returns settled batches: the antechamber, and those of records for a partition that is not
        there.
        """
        queues = [self._outbox.queue(topic, partition) for partition in range(partition_count)]
        lane = self._lanes.get(topic)
        if lane is not None:
            lane.queues = queues
            return []
        first = queues[int(self._rng.random() * partition_count)]
        self._lanes[topic] = _Lane(queues, first)
        waiting = self._unassigned.pop(topic, None)
        if waiting is None:
            return []
        settled = [waiting.antechamber]
        hurried = waiting.antechamber.hurried
        for delivery, (partition, key, value, headers, timestamp_ms, size) in waiting.records:
            self.buffered_bytes -= size
            try:
                moved = self.append(topic, partition, key, value, headers, timestamp_ms)
            except MillraceError as error:
                refused = Batch(self._owner, topic, ANTECHAMBER, self._next_number())
                refused.values.append(value)
                refused.fail(error)
                delivery.move(refused, 0)
                settled.append(refused)
            else:
                delivery.follow(moved, hurried=hurried)
        # What it held is accounted for in the batches that it went to.
        waiting.antechamber.size_bytes = waiting.antechamber.count = 0
        waiting.antechamber.ack(-1, -1)
        return settled

    def unassigned(self, now_ms: int) -> list[tuple[str, int]]:
        """Topics with records whose partitions are not known, and since when they wait."""
        found = []
        for topic, waiting in self._unassigned.items():
            opened_ms = waiting.antechamber.opened_ms
            if opened_ms is None:
                opened_ms = waiting.antechamber.opened_ms = now_ms
            found.append((topic, opened_ms))
        return found

    def reject(self, topic: str, error: MillraceError) -> list[Batch]:
        """Gives up the records that wait for a topic's partitions."""
        waiting = self._unassigned.pop(topic, None)
        if waiting is None:
            return []
        waiting.antechamber.fail(error)
        return [waiting.antechamber]

    def reject_all(self, error: MillraceError) -> list[Batch]:
        """Gives up all records that wait for their topic's partitions."""
        return [batch for topic in tuple(self._unassigned) for batch in self.reject(topic, error)]

    def forget(self, topic: str) -> None:
        """The topic is not there any more; its records wait for metadata again."""
        self._lanes.pop(topic, None)

    # Flushing and accounting

    def antechambers(self) -> list[Batch]:
        """What waits for partitions; settled when it has moved on."""
        return [waiting.antechamber for waiting in self._unassigned.values()]

    def seal_all(self) -> None:
        """Closes every open batch, so that nothing lingers."""
        for lane in self._lanes.values():
            for queue in lane.queues:
                queue.close_open()
        self.attention = True

    def release(self, settled: list[Batch]) -> None:
        """Gives the room of settled batches back."""
        for batch in settled:
            if batch.size_bytes:
                self.buffered_bytes -= batch.size_bytes
                batch.size_bytes = 0

    # Inside

    def _append_unassigned(self, topic: str, record: _UnassignedRecord) -> Delivery:
        waiting = self._unassigned.get(topic)
        if waiting is None:
            antechamber = Batch(self._owner, topic, ANTECHAMBER, self._next_number())
            waiting = self._unassigned[topic] = _Unassigned(antechamber)
            self.attention = True
        delivery = Delivery(waiting.antechamber, len(waiting.records))
        waiting.records.append((delivery, record))
        size = record[-1]
        waiting.antechamber.size_bytes += size
        waiting.antechamber.count += 1
        self.buffered_bytes += size
        return delivery

    def _choose(self, lane: _Lane, topic: str, key: bytes | None) -> int | None:
        """The partition of a record that names none; None for the sticky one."""
        if self._partitioner is None:
            return by_key(topic, key, len(lane.queues))
        return self._partitioner(topic, key, len(lane.queues))

    def _queue_at(self, lane: _Lane, topic: str, partition: int) -> PartitionQueue:
        if 0 <= partition < len(lane.queues):
            return lane.queues[partition]
        raise UnknownTopicOrPartition(
            f"partition {partition}: {topic} has partitions 0 to {len(lane.queues) - 1}",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    def _next_batch(self, lane: _Lane, queue: PartitionQueue, size: int, *, bound: bool) -> Batch:
        """The batch for a record of `size` where `queue`'s open one is none, or too full.

        Records that are not `bound` to a partition move to another one with each batch.
        """
        self._seal(queue)
        if not bound:
            queue = lane.sticky = self._other_queue(lane, queue)
            batch = queue.open
            if batch is not None and batch.size_bytes + size <= self._batch_bytes:
                return batch
            self._seal(queue)
        batch = queue.open = Batch(self._owner, queue.topic, queue.partition, self._next_number())
        self._outbox.opened(queue, batch)
        self.attention = True
        return batch

    def _seal(self, queue: PartitionQueue) -> None:
        if queue.close_open() is not None:
            self.sealed_count += 1

    def _other_queue(self, lane: _Lane, queue: PartitionQueue) -> PartitionQueue:
        count = len(lane.queues)
        if count == 1:
            return lane.queues[0]
        step = 1 + int(self._rng.random() * (count - 1))
        return lane.queues[(queue.partition + step) % count]

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _buffer_full(self, size: int) -> BufferFull:
        return BufferFull(
            f"{self.buffered_bytes} of buffer_bytes={self._buffer_bytes} wait to be acked, and the "
            f"record needs {size}: await producer.room() before send, or await the send"
        )

    def _check_size(self, size: int) -> None:
        limit = self._config.max_request_bytes - HEADER_SIZE
        if size > limit:
            raise MessageTooLarge(
                f"a record of up to {size} bytes with its frame, and max_request_bytes="
                f"{self._config.max_request_bytes} leaves {limit}: send less, or raise it together "
                "with the topic's max.message.bytes",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )


def _size_of(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
    start: int,
    count: int,
) -> int:
    """An upper bound of the bytes of `count` records from `start` on."""
    end = start + count
    if headers is not None:
        some_keys = repeat(None) if keys is None else keys[start:end]
        return sum(map(record_size_max, some_keys, values[start:end], headers[start:end]))
    size = RECORD_OVERHEAD_BYTES * count + _bytes_in(values[start:end])
    return size if keys is None else size + _bytes_in(keys[start:end])


def _bytes_in(column: Sequence[bytes | None]) -> int:
    try:
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        return sum(len(item) for item in column if item is not None)


def _extend_columns(
    batch: Batch,
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
    timestamps_ms: Sequence[int] | int,
    start: int,
    end: int,
) -> None:
    held = len(batch.values)
    if keys is not None or batch.keys is not None:
        if batch.keys is None:
            batch.keys = [None] * held
        batch.keys.extend(repeat(None, end - start) if keys is None else keys[start:end])
    if headers is not None or batch.headers is not None:
        if batch.headers is None:
            batch.headers = [()] * held
        batch.headers.extend(repeat((), end - start) if headers is None else headers[start:end])
    if isinstance(timestamps_ms, int):
        batch.timestamps_ms.extend(repeat(timestamps_ms, end - start))
    else:
        batch.timestamps_ms.extend(timestamps_ms[start:end])
    batch.values.extend(values[start:end])
