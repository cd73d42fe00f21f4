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
from millrace._producer.columns import Columns, check_topic, record_too_large
from millrace._producer.partition_queue import PartitionQueue
from millrace._producer.pending_records import PendingRecords, buffer_full
from millrace._producer.produce_queue import ProduceQueue
from millrace._producer.receipts import Deliveries, Receipts, Run, inverse
from millrace._producer.topic_state import TopicState
from millrace._producer.unassigned_records import UNASSIGNED, UnassignedRecords
from millrace.config import ProducerConfig
from millrace.errors import (
    MillraceError,
    UnknownTopicOrPartition,
    again,
)
from millrace.partitioner import Partitioner, by_key
from millrace_protocol.records import RECORD_OVERHEAD_BYTES, Headers, record_size_max

if TYPE_CHECKING:
    from millrace._producer.arrow_columns import ArrowColumns

_FIRST_GUESS = 512
_NO_BOUND = 1 << 62


class Accumulator:
    """The records of one producer that are not settled.

    `buffered_bytes <= buffer_bytes`, but for one record more. Up to `roomy_bytes` any record is
    taken, however large.
    `needs_wakeup` is set with each batch that is opened: `ProduceQueue.drain` may have more to do.
    `backlog` is the call whose records did not all fit; until they do, others are refused.
    """

    def __init__(
        self,
        config: ProducerConfig,
        produce_queue: ProduceQueue,
        *,
        owner: Owner,
        rng: Rng,
        partitioner: Partitioner | None = None,
    ) -> None:
        self.buffered_bytes = 0
        self.needs_wakeup = False
        self.backlog: PendingRecords | None = None
        self.roomy_bytes = config.buffer_bytes - config.request_bytes
        self._record_bytes_max = config.record_bytes_max
        self._config = config
        self._produce_queue = produce_queue
        self._owner = owner
        self._rng = rng
        self._partitioner = None if partitioner is by_key else partitioner
        self._batch_bytes = config.filled_batch_bytes
        self._buffer_bytes = config.buffer_bytes
        self._topic_states: dict[str, TopicState] = {}
        self._unassigned: dict[str, UnassignedRecords] = {}
        self._refused: list[Batch] = []
        self._number = 0

    @property
    def buffered_records(self) -> int:
        """How many records are not settled; counts batches, so it is not for each send.

        For any thread: what it iterates over was copied in one step.
        """
        batches = (*self._produce_queue.pending(), *self.unassigned_batches())
        return sum(batch.record_count for batch in batches)

    @property
    def has_room(self) -> bool:
        """Whether any record that is allowed at all would be taken."""
        return self.backlog is None and self.buffered_bytes <= self.roomy_bytes

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
        if size > self._record_bytes_max:
            raise record_too_large(size, self._config)
        if self.backlog is not None or not self._fits(1, size):
            raise buffer_full(self.backlog, size, self.buffered_bytes, self._buffer_bytes)
        state = self._topic_states.get(topic)
        if state is None:
            batch = self._unassigned_batch(topic, [partition], size)
        else:
            if partition is None and (key is not None or self._partitioner is not None):
                partition = state.choose(key)
            queue = state.queue_for(partition)
            opened = queue.open
            if opened is None or opened.size_bytes + size > opened.limit_bytes:
                opened = self._next_batch(state, queue, size, bound=partition is not None)
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
            raise buffer_full(
                self.backlog, RECORD_OVERHEAD_BYTES, self.buffered_bytes, self._buffer_bytes
            )
        state = self._topic_states.get(topic)
        if state is not None and partition is not None:
            state.queue_for(partition)
        pending = PendingRecords(self._owner, topic, partition, columns)
        self._feed(pending)
        if not pending.is_done:
            pending.keep_rest()
            self.backlog = pending
            self.needs_wakeup = True
        return pending.deliveries

    def feed(self) -> None:
        """Takes of the backlog what there is room for by now."""
        if self.backlog is not None:
            self._feed(self.backlog)
            if self.backlog.is_done:
                self.backlog = None

    def _feed(self, pending: PendingRecords) -> None:
        columns = pending.columns
        if not isinstance(columns, Columns):
            state = self._topic_states.get(pending.topic)
            if state is not None and 2 * columns.size_bytes >= self._batch_bytes:
                self._feed_arrow(state, pending, columns)
                return
            # Few records are worth waiting for others; and a batch of Arrow's has one partition.
            columns = pending.columns = columns.lists()
        self._feed_lists(pending, columns)

    def _feed_lists(self, pending: PendingRecords, columns: Columns) -> None:
        topic, partition = pending.topic, pending.partition
        end = len(columns.values)
        while pending.taken < end:
            start = pending.taken
            free = self._buffer_bytes - self.buffered_bytes
            state = self._topic_states.get(topic)
            if state is not None and not state.spreads(partition, columns):
                pending.took(self._extend(state, partition, columns, start, end, free))
                return
            count, size = columns.fitting(start, end - start, free)
            if size > self._record_bytes_max and count == 1:
                pending.took([self._refuse_large(topic, size)])
            elif not self._fits(count, size):
                return
            elif state is None:
                batch = self._unassigned_batch(topic, [partition] * count, size)
                first = batch.extend(columns, start, start + count, size)
                self.buffered_bytes += size
                pending.took([(batch, first, count)])
            else:
                part = columns.part(start, start + count)
                pending.took(*self._scatter(state, [None] * count, part))

    def _feed_arrow(
        self, state: TopicState, pending: PendingRecords, columns: ArrowColumns
    ) -> None:
        """Puts columns into batches of their own, of equal sizes, as far as there is room."""
        topic, partition = pending.topic, pending.partition
        queue = state.queue_for(partition)
        share_bytes = columns.share_bytes(self._batch_bytes_of(queue))
        while pending.taken < len(columns):
            start = pending.taken
            count, size = columns.fitting(start, share_bytes)
            if count == 1 and size > self._record_bytes_max:
                pending.took([self._refuse_large(topic, size)])
            elif not self._fits(count, size):
                return
            else:
                part = columns.part(start, start + count)
                batch = self._arrow_batch(state, partition, part)
                self.buffered_bytes += size
                pending.took([(batch, 0, count)])

    def refused(self) -> list[Batch]:
        """Batches of records that could not be taken, settled since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def knows(self, topic: str) -> bool:
        """Whether the topic's partitions are known."""
        return topic in self._topic_states

    # Topics

    def assign(self, topic: str, partition_count: int) -> list[Batch]:
        """The topic has so many partitions: its records can be put into batches.

        Returns settled batches: that of the unassigned records, and those of records for a
        partition that is not there.
        """
        queues = [
            self._produce_queue.queue(topic, partition) for partition in range(partition_count)
        ]
        state = self._topic_states.get(topic)
        if state is not None:
            state.queues = queues
            return []
        state = self._topic_states[topic] = TopicState(
            topic, queues, rng=self._rng, partitioner=self._partitioner
        )
        waiting = self._unassigned.pop(topic, None)
        if waiting is None:
            return []
        unassigned = waiting.batch
        self.buffered_bytes -= unassigned.size_bytes
        unassigned.size_bytes = 0
        runs, rows = self._scatter(state, waiting.partitions, unassigned.columns())
        for batch, _, _ in runs:
            batch.flush_now |= unassigned.flush_now
        unassigned.move(Receipts(runs, inverse(rows)))
        return [unassigned, *self.refused()]

    def unassigned_topics(self, now_ms: int) -> list[tuple[str, int]]:
        """Topics with records whose partitions are not known, and since when they wait."""
        return [(topic, waiting.since_ms(now_ms)) for topic, waiting in self._unassigned.items()]

    def reject(self, topic: str, error: MillraceError) -> list[Batch]:
        """Gives up the records that wait for a topic's partitions, or to be taken."""
        waiting = self._unassigned.pop(topic, None)
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
        topics = [*self._unassigned]
        if self.backlog is not None:
            topics.append(self.backlog.topic)
        return [batch for topic in topics for batch in self.reject(topic, error)]

    def forget(self, topic: str) -> None:
        """The topic is not there any more; its records wait for metadata again."""
        self._topic_states.pop(topic, None)

    # Flushing and accounting

    def unassigned_batches(self) -> list[Batch]:
        """What waits for partitions; settled when it has moved on."""
        return [waiting.batch for waiting in list(self._unassigned.values())]

    def seal_all(self) -> None:
        """Closes every open batch, so that nothing lingers."""
        for state in self._topic_states.values():
            for queue in state.queues:
                queue.close_open()
        self.needs_wakeup = True

    def release(self, settled: list[Batch]) -> None:
        """Gives the room of settled batches back."""
        for batch in settled:
            if batch.size_bytes:
                self.buffered_bytes -= batch.size_bytes
                batch.size_bytes = 0

    # Filling

    def _extend(
        self,
        state: TopicState,
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
        queue = state.queue_for(partition)
        runs: list[Run] = []
        guess = _FIRST_GUESS if columns.record_bytes is None else _NO_BOUND
        while start < end:
            batch = queue.open
            room = 0 if batch is None else batch.limit_bytes - batch.size_bytes
            if room < RECORD_OVERHEAD_BYTES:
                batch, room = None, self._batch_bytes_of(queue)
            count, size = columns.fitting(start, min(guess, end - start), min(room, free))
            if count == 1 and size > self._record_bytes_max:
                runs.append(self._refuse_large(state.topic, size))
                start += 1
                continue
            if size > free and not self._fits(count, size):
                break
            if batch is None or size > room:
                # Not before it is sure that a record goes into it: none that is open is empty.
                batch = self._next_batch(state, queue, size, bound=bound)
                queue = queue if bound else state.sticky
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
        self,
        state: TopicState,
        partitions: Sequence[int | None],
        columns: Columns,
    ) -> tuple[list[Run], list[int]]:
        """Takes all records, without a bound: each to the partition it names, or its key does.

        Returns where they are, and the rows in that order. Those for a partition that is not
        there are refused.
        """
        groups = state.group(partitions, columns.keys)
        runs: list[Run] = []
        order: list[int] = []
        for partition, rows in groups.items():
            picked = columns if len(groups) == 1 else columns.pick(rows)
            try:
                runs += self._extend(state, partition, picked, 0, len(rows), _NO_BOUND)
            except UnknownTopicOrPartition as error:
                runs.append(self._refuse(state.topic, len(rows), again(error)))
            order += rows
        return runs, order

    def _unassigned_batch(self, topic: str, partitions: Sequence[int | None], size: int) -> Batch:
        """Where the next records of a topic without partitions go; `size` is theirs."""
        waiting = self._unassigned.get(topic)
        if waiting is None:
            check_topic(topic)
            batch = Batch(self._owner, topic, UNASSIGNED, self._next_number(), 0)
            waiting = self._unassigned[topic] = UnassignedRecords(batch)
        self.needs_wakeup |= waiting.expect(partitions, size)
        return waiting.batch

    def _refuse(self, topic: str, count: int, error: MillraceError) -> Run:
        """A batch of records that failed before they were in one."""
        batch = Batch(self._owner, topic, UNASSIGNED, self._next_number(), 0)
        batch.count = count
        batch.fail(error)
        self._refused.append(batch)
        return batch, 0, count

    def _refuse_large(self, topic: str, size: int) -> Run:
        return self._refuse(
            topic,
            1,
            record_too_large(size, self._config),
        )

    def _fits(self, count: int, size: int) -> bool:
        """Whether so many records with so many bytes may be taken now."""
        if self.buffered_bytes + size <= self._buffer_bytes:
            return True
        return count == 1 and self.buffered_bytes <= self.roomy_bytes

    def _next_batch(
        self, state: TopicState, queue: PartitionQueue, size: int, *, bound: bool
    ) -> Batch:
        """The batch for a record of `size` where `queue`'s open one is none, or too full.

        Records that are not `bound` to a partition move to another one with each batch.
        """
        queue.close_open()
        self.needs_wakeup = True
        if not bound:
            queue = state.move_sticky()
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
        self._produce_queue.opened(queue, batch)
        return batch

    def _arrow_batch(
        self, state: TopicState, partition: int | None, columns: ArrowColumns
    ) -> Batch:
        """A batch of these records, behind all that its partition was given before."""
        queue = state.queue_for(partition)
        queue.close_open()
        if partition is None:
            queue = state.move_sticky()
            queue.close_open()
        batch = queue.open = ArrowBatch(
            self._owner, queue.topic, queue.partition, self._next_number(), columns
        )
        self._produce_queue.opened(queue, batch)
        queue.close_open()
        self.needs_wakeup = True
        return batch

    def _batch_bytes_of(self, queue: PartitionQueue) -> int:
        return min(self._batch_bytes, queue.batch_bytes_max)

    def _next_number(self) -> Number:
        self._number += 1
        return (self._number,)
