"""Where a producer's records become batches.

Owns the byte bound, the filling of batches, the choice of partition, and the records of topics
whose partitions are not known yet. What leaves when is `produce_queue`'s. Knows no event loop and
no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace._backoff import Rng
from millrace._producer.arrow_batch import ArrowBatch
from millrace._producer.batch import Batch, Number, Owner
from millrace._producer.columns import Columns, check_topic
from millrace._producer.partition_queue import PartitionQueue
from millrace._producer.pending_records import Intake
from millrace._producer.produce_queue import Outbox
from millrace._producer.receipts import Deliveries, Receipts, Run, inverse
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

if TYPE_CHECKING:
    from millrace._producer.arrow_columns import ArrowColumns

ANTECHAMBER = -1
"""The partition number of a batch whose records have none yet."""
_FIRST_GUESS = 512
_NO_BOUND = 1 << 62


class _Lane:
    """One topic: its partitions, and the one that records without a key go to for now."""

    __slots__ = ("queues", "sticky")

    def __init__(self, queues: list[PartitionQueue], sticky: PartitionQueue) -> None:
        self.queues = queues
        self.sticky = sticky


class _Antechamber:
    """The records of a topic that nothing is known of, in order, and what they ask for."""

    __slots__ = ("batch", "partitions")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.partitions: list[int | None] = []


class Accumulator:
    """The records of one producer that are not settled; `buffered_bytes <= buffer_bytes`.

    `attention` is set when `Outbox.drain` may have something to do that it had not before: with
    each batch that is opened. Up to `roomy_bytes` any record is taken.
    `backlog` is the call whose records did not all fit; until they do, others are refused.
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
        self.backlog: Intake | None = None
        self.roomy_bytes = config.buffer_bytes - config.max_request_bytes
        self._record_bytes_max = max(config.batch_bytes, config.max_request_bytes - HEADER_SIZE)
        self._config = config
        self._outbox = outbox
        self._owner = owner
        self._rng = rng
        self._partitioner = None if partitioner is by_key else partitioner
        self._batch_bytes = config.batch_bytes
        self._buffer_bytes = config.buffer_bytes
        self._lanes: dict[str, _Lane] = {}
        self._antechambers: dict[str, _Antechamber] = {}
        self._refused: list[Batch] = []
        self._number = 0

    @property
    def buffered_records(self) -> int:
        """How many records are not settled; counts batches, so it is not for each send."""
        batches = (*self._outbox.pending(), *self.antechambers())
        return sum(batch.record_count for batch in batches)

    @property
    def has_room(self) -> bool:
        """Whether any record that is allowed at all would be taken."""
        return self.backlog is None and self.buffered_bytes <= self.roomy_bytes

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
    ) -> Batch:
        """Takes one record; it is the last of the batch that is returned.

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
        if self.backlog is not None or self.buffered_bytes + size > self._buffer_bytes:
            raise self._buffer_full(size)
        if size > self._record_bytes_max:
            raise self._too_large(size)
        lane = self._lanes.get(topic)
        if lane is None:
            batch = self._antechamber(topic, [partition], size)
        else:
            if partition is None and (key is not None or self._partitioner is not None):
                partition = self._choose(lane, topic, key)
            queue = lane.sticky if partition is None else self._queue_at(lane, topic, partition)
            opened = queue.open
            if opened is None or opened.size_bytes + size > opened.limit_bytes:
                opened = self._next_batch(lane, queue, size, bound=partition is not None)
            batch = opened
        batch.append(key, value, headers, timestamp_ms, size)
        self.buffered_bytes += size
        return batch

    def take(
        self, topic: str, partition: int | None, columns: Columns | ArrowColumns
    ) -> Deliveries:
        """Takes many records, and keeps those that do not fit as the `backlog`.

        Arrow's columns name their partition, or have no keys and may go to any. A record that is
        too large fails alone. Raises `BufferFull` while there is a backlog, or
        `UnknownTopicOrPartition` for a partition that is not there; then it took nothing.
        """
        if self.backlog is not None:
            raise self._buffer_full(RECORD_OVERHEAD_BYTES)
        lane = self._lanes.get(topic)
        if lane is not None and partition is not None:
            self._queue_at(lane, topic, partition)
        intake = Intake(self._owner, topic, partition, columns)
        self._feed(intake)
        if not intake.is_done:
            intake.keep_rest()
            self.backlog = intake
            self.attention = True
        return intake.deliveries

    def feed(self) -> None:
        """Takes of the backlog what there is room for by now."""
        if self.backlog is not None:
            self._feed(self.backlog)
            if self.backlog.is_done:
                self.backlog = None

    def _feed(self, intake: Intake) -> None:
        columns = intake.columns
        if not isinstance(columns, Columns):
            lane = self._lanes.get(intake.topic)
            if lane is not None and 2 * columns.size_bytes >= self._batch_bytes:
                self._feed_arrow(lane, intake, columns)
                return
            # Few records are worth waiting for others; and a batch of Arrow's has one partition.
            columns = intake.columns = columns.lists()
        self._feed_lists(intake, columns)

    def _feed_lists(self, intake: Intake, columns: Columns) -> None:
        topic, partition = intake.topic, intake.partition
        end = len(columns.values)
        while intake.taken < end:
            start = intake.taken
            free = self._buffer_bytes - self.buffered_bytes
            lane = self._lanes.get(topic)
            if lane is not None and not self._scatters(lane, partition, columns):
                intake.took(self._extend(lane, topic, partition, columns, start, end, free))
                return
            count, size = columns.fitting(start, end - start, free)
            if size > self._record_bytes_max and count == 1:
                intake.took([self._refuse(topic, 1, self._too_large(size))])
            elif size > free:
                return
            elif lane is None:
                batch = self._antechamber(topic, [partition] * count, size)
                first = batch.extend(columns, start, start + count, size)
                self.buffered_bytes += size
                intake.took([(batch, first, count)])
            else:
                part = columns.part(start, start + count)
                intake.took(*self._scatter(lane, topic, [None] * count, part))

    def _feed_arrow(self, lane: _Lane, intake: Intake, columns: ArrowColumns) -> None:
        """Puts columns into batches of their own, of equal sizes, as far as there is room."""
        topic, partition = intake.topic, intake.partition
        queue = lane.sticky if partition is None else self._queue_at(lane, topic, partition)
        share_bytes = columns.share_bytes(self._batch_bytes_of(queue))
        while intake.taken < len(columns):
            start = intake.taken
            count, size = columns.fitting(start, share_bytes)
            if count == 1 and size > self._record_bytes_max:
                intake.took([self._refuse(topic, 1, self._too_large(size))])
            elif size > self._buffer_bytes - self.buffered_bytes:
                return
            else:
                part = columns.part(start, start + count)
                batch = self._arrow_batch(lane, topic, partition, part)
                self.buffered_bytes += size
                intake.took([(batch, 0, count)])

    def refused(self) -> list[Batch]:
        """Batches of records that could not be taken, settled since the last call."""
        refused, self._refused = self._refused, []
        return refused

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
        lane = self._lanes[topic] = _Lane(queues, first)
        waiting = self._antechambers.pop(topic, None)
        if waiting is None:
            return []
        antechamber = waiting.batch
        self.buffered_bytes -= antechamber.size_bytes
        antechamber.size_bytes = 0
        runs, rows = self._scatter(lane, topic, waiting.partitions, antechamber.columns())
        for batch, _, _ in runs:
            batch.hurried |= antechamber.hurried
        antechamber.move(Receipts(runs, inverse(rows)))
        return [antechamber, *self.refused()]

    def unassigned(self, now_ms: int) -> list[tuple[str, int]]:
        """Topics with records whose partitions are not known, and since when they wait."""
        found = []
        for topic, waiting in self._antechambers.items():
            opened_ms = waiting.batch.opened_ms
            if opened_ms is None:
                opened_ms = waiting.batch.opened_ms = now_ms
            found.append((topic, opened_ms))
        return found

    def reject(self, topic: str, error: MillraceError) -> list[Batch]:
        """Gives up the records that wait for a topic's partitions, or to be taken."""
        waiting = self._antechambers.pop(topic, None)
        if waiting is not None:
            waiting.batch.fail(error)
            self._refused.append(waiting.batch)
        backlog = self.backlog
        if backlog is not None and backlog.topic == topic:
            count = len(backlog.columns.values) - backlog.taken
            backlog.took([self._refuse(topic, count, error)])
            self.backlog = None
        return self.refused()

    def reject_all(self, error: MillraceError) -> list[Batch]:
        """Gives up all records that wait for their topic's partitions, or to be taken."""
        topics = [*self._antechambers]
        if self.backlog is not None:
            topics.append(self.backlog.topic)
        return [batch for topic in topics for batch in self.reject(topic, error)]

    def forget(self, topic: str) -> None:
        """The topic is not there any more; its records wait for metadata again."""
        self._lanes.pop(topic, None)

    # Flushing and accounting

    def antechambers(self) -> list[Batch]:
        """What waits for partitions; settled when it has moved on."""
        return [waiting.batch for waiting in self._antechambers.values()]

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

    # Filling

    def _extend(
        self,
        lane: _Lane,
        topic: str,
        partition: int | None,
        columns: Columns,
        start: int,
        end: int,
        free: int,
    ) -> list[Run]:
        """Takes the records in `[start, end)`, as far as they fit into `free` bytes.

        Whole slices go into batches of one partition, or of any. A record that cannot be taken at
        all is refused.
        """
        bound = partition is not None
        queue = lane.sticky if partition is None else self._queue_at(lane, topic, partition)
        runs: list[Run] = []
        guess = _FIRST_GUESS if columns.record_bytes is None else _NO_BOUND
        while start < end:
            batch = queue.open
            room = 0 if batch is None else batch.limit_bytes - batch.size_bytes
            if room < RECORD_OVERHEAD_BYTES:
                batch, room = None, self._batch_bytes_of(queue)
            count, size = columns.fitting(start, min(guess, end - start), min(room, free))
            if count == 1 and size > self._record_bytes_max:
                runs.append(self._refuse(topic, 1, self._too_large(size)))
                start += 1
                continue
            if size > free:
                break
            if batch is None or size > room:
                # Not before it is sure that a record goes into it: none that is open is empty.
                batch = self._next_batch(lane, queue, size, bound=bound)
                queue = queue if bound else lane.sticky
            first = batch.extend(columns, start, start + count, size)
            self.buffered_bytes += size
            free -= size
            runs.append((batch, first, count))
            start += count
            if columns.record_bytes is None:
                guess = (batch.limit_bytes - batch.size_bytes) * count // size
                if guess <= 1:
                    guess = max(1, self._batch_bytes * count // size)
        return runs

    def _scatter(
        self, lane: _Lane, topic: str, partitions: Sequence[int | None], columns: Columns
    ) -> tuple[list[Run], list[int]]:
        """Takes all records, whatever the bound: each to the partition it names, or its key does.

        Returns where they are, and the rows in that order. Those for a partition that is not
        there are refused.
        """
        keys = columns.keys
        chosen = {key: self._choose(lane, topic, key) for key in dict.fromkeys(keys or (None,))}
        groups: dict[int | None, list[int]] = {}
        for row, partition in enumerate(partitions):
            if partition is None:
                partition = chosen[keys[row] if keys is not None else None]
            if partition in groups:
                groups[partition].append(row)
            else:
                groups[partition] = [row]
        runs: list[Run] = []
        order: list[int] = []
        for partition, rows in groups.items():
            picked = columns if len(groups) == 1 else columns.pick(rows)
            try:
                runs += self._extend(lane, topic, partition, picked, 0, len(rows), _NO_BOUND)
            except UnknownTopicOrPartition as error:
                runs.append(self._refuse(topic, len(rows), error))
            order += rows
        return runs, order

    def _antechamber(self, topic: str, partitions: Sequence[int | None], size: int) -> Batch:
        """Where the next records of a topic without partitions go; `size` is theirs."""
        waiting = self._antechambers.get(topic)
        if waiting is None:
            check_topic(topic)
            batch = Batch(self._owner, topic, ANTECHAMBER, self._next_number(), 0)
            waiting = self._antechambers[topic] = _Antechamber(batch)
        waiting.partitions += partitions
        batch = waiting.batch
        # It asks for attention like a batch that was opened, once for each that it could fill.
        if batch.size_bytes + size > batch.limit_bytes:
            batch.limit_bytes = batch.size_bytes + size + self._batch_bytes
            self.attention = True
        return batch

    def _refuse(self, topic: str, count: int, error: MillraceError) -> Run:
        """A batch of records that failed before they were in one."""
        batch = Batch(self._owner, topic, ANTECHAMBER, self._next_number(), 0)
        batch.count = count
        batch.fail(error)
        self._refused.append(batch)
        return batch, 0, count

    def _scatters(self, lane: _Lane, partition: int | None, columns: Columns) -> bool:
        """Whether records that name no partition may be bound to several."""
        if partition is not None:
            return False
        if self._partitioner is not None:
            return True
        return columns.keys is not None and len(lane.queues) > 1

    def _choose(self, lane: _Lane, topic: str, key: bytes | None) -> int | None:
        """The partition of a record that names none; None for the sticky one."""
        if self._partitioner is None:
            # Of one partition all records keep the order they were given in, with keys or without.
            return 0 if len(lane.queues) == 1 else by_key(topic, key, len(lane.queues))
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
        queue.close_open()
        self.attention = True
        if not bound:
            queue = lane.sticky = self._other_queue(lane, queue)
            batch = queue.open
            if batch is not None and batch.size_bytes + size <= batch.limit_bytes:
                return batch
            queue.close_open()
        batch = queue.open = Batch(
            self._owner,
            queue.topic,
            queue.partition,
            self._next_number(),
            self._batch_bytes_of(queue),
        )
        self._outbox.opened(queue, batch)
        return batch

    def _arrow_batch(
        self, lane: _Lane, topic: str, partition: int | None, columns: ArrowColumns
    ) -> Batch:
        """A batch of these records, behind all that its partition was given before."""
        queue = lane.sticky if partition is None else self._queue_at(lane, topic, partition)
        queue.close_open()
        if partition is None:
            queue = lane.sticky = self._other_queue(lane, queue)
            queue.close_open()
        batch = queue.open = ArrowBatch(
            self._owner, topic, queue.partition, self._next_number(), columns
        )
        self._outbox.opened(queue, batch)
        queue.close_open()
        self.attention = True
        return batch

    def _other_queue(self, lane: _Lane, queue: PartitionQueue) -> PartitionQueue:
        count = len(lane.queues)
        if count == 1:
            return lane.queues[0]
        step = 1 + int(self._rng.random() * (count - 1))
        return lane.queues[(queue.partition + step) % count]

    def _batch_bytes_of(self, queue: PartitionQueue) -> int:
        return min(self._batch_bytes, queue.batch_bytes_max)

    def _next_number(self) -> Number:
        self._number += 1
        return (self._number,)

    def _buffer_full(self, size: int) -> BufferFull:
        if self.backlog is not None:
            count = len(self.backlog.columns.values) - self.backlog.taken
            return BufferFull(
                f"{count} records of an earlier send_many wait for room in buffer_bytes="
                f"{self._buffer_bytes}: await producer.room() first"
            )
        return BufferFull(
            f"{self.buffered_bytes} of buffer_bytes={self._buffer_bytes} wait to be acked, and the "
            f"record needs {size}: await producer.room() before each send"
        )

    def _too_large(self, size: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"a record of up to {size} bytes with its frame, and max_request_bytes="
            f"{self._config.max_request_bytes} leaves {self._record_bytes_max}: send less, or "
            "raise it together with the topic's max.message.bytes",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
