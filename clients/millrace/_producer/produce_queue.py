"""The queue of a producer: the batches that may be sent now, and the effect of responses.

Owns lingering, retries, delivery deadlines, and the producer's epoch. Order and sequences of one
partition are `partition_queue`'s; filling batches is `accumulator`'s. Knows no event loop, no
clock and no network: time comes in as `now_ms` of one monotonic clock. Source: KIP-98 for
sequences, KIP-360 for going on with a new epoch.

Sequence numbers after a failure. A batch that was given up leaves a gap, behind which the broker
accepts nothing of the old epoch. So a new epoch is asked for, and the batches that are left are
numbered again. That is safe only for batches which are in no log, and a batch whose answer never
came may be in one. So while an epoch is wanted, just those uncertain batches are sent, under the
old epoch: the broker either has them (ack) or misses one before them, and then it has none of
them. When nothing is uncertain or in flight any more, the new epoch is asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace._backoff import Rng, backoff_ms
from millrace._broker_error import broker_error
from millrace._producer.batch import NO_SEQUENCE, Batch
from millrace._producer.partition_queue import PartitionQueue
from millrace._producer.produce_requests import Drained, RequestDraft, Send
from millrace._producer.producer_epoch import ProducerEpoch
from millrace._producer.splitting import split
from millrace._wording import counted
from millrace.config import ProducerConfig
from millrace.errors import (
    ConnectionFailed,
    DeliveryTimeout,
    MessageTooLarge,
    MillraceError,
    ProducerFenced,
    UnknownProducerId,
    UnsupportedVersion,
)
from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_protocol.messages.produce import ProducePartitionResult

IN_FLIGHT_MAX = 5
"""Batches of one partition on their way: as many as a broker remembers for a retry."""
REQUESTS_PER_NODE_MAX = 32
"""Requests one broker may have to answer; it reads on at 64."""
_NEVER_LEFT = (ConnectionFailed, MessageTooLarge, UnsupportedVersion)
"""What `Connection` raises before a byte is written."""
_UNDECIDED = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.BROKER_STOPPING,
    }
)
"""Refusals after which the batch may be in the log: the broker gave up while it was at it."""
_MAY_BE_CUT_OFF = _UNDECIDED | {ErrorCode.UNKNOWN_PRODUCER_ID}
"""A leader that is cut off from the others knows no new producer, nor that another one leads."""


LeaderOf = Callable[[str, int], int | None]
"""The node that leads `(topic, partition)`, or None while none is known."""


class ProduceQueue:
    """Every partition with something to send or to wait for.

    `in_flight_requests` counts what was sent and has not ended. Each `on_` method returns the
    batches it settled.
    """

    def __init__(self, config: ProducerConfig, *, rng: Rng) -> None:
        self.in_flight_requests = 0
        self.stale_topics: set[str] = set()
        self.last_error: MillraceError | None = None
        """Why a batch was last put back; the caller reports it and sets it to None."""
        self._config = config
        self._rng = rng
        self._idempotent = config.is_idempotent
        self._in_flight_max = IN_FLIGHT_MAX if self._idempotent else 1
        self._active: dict[PartitionQueue, None] = {}
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._unstamped: list[Batch] = []
        self._node_requests: dict[int, int] = {}
        self._epoch = ProducerEpoch(is_wanted=self._idempotent)

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The queue of a partition; made once, so that its sequences go on."""
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = PartitionQueue(topic, partition)
        return queue

    def opened(self, queue: PartitionQueue, batch: Batch) -> None:
        """A batch was opened in `queue`; its age counts from the next `drain` on."""
        self._active[queue] = None
        self._unstamped.append(batch)

    def pending(self) -> list[Batch]:
        """All batches that are not settled."""
        return [b for queue in list(self._active) for b in queue.batches() if not b.settled]

    def oldest_opened_ms(self) -> int | None:
        """When the oldest batch that is not settled was opened."""
        opened = [b.opened_ms for b in self.pending() if b.opened_ms is not None]
        return min(opened, default=None)

    # Out

    def drain(self, now_ms: int, leader_of: LeaderOf, *, buffer_full: bool) -> Drained:
        """What may be sent now. `buffer_full` sends what still lingers, to make room."""
        for batch in self._unstamped:
            batch.opened_ms = now_ms
        self._unstamped.clear()
        drained = Drained()
        drained.unknown_topics, self.stale_topics = self.stale_topics, set()
        self._ask_epoch(drained, now_ms)
        requests: dict[int, list[RequestDraft]] = {}
        for queue in tuple(self._active):
            self._expire(queue, now_ms, drained)
            if queue.is_empty:
                del self._active[queue]
                continue
            if self._fill(queue, now_ms, leader_of, requests, drained, buffer_full=buffer_full):
                # A queue that was served goes to the end, so that a busy broker serves all in turn.
                del self._active[queue]
                self._active[queue] = None
        for node_id, filled in requests.items():
            drained.sends += [Send(node_id, tuple(request.batches)) for request in filled]
        self.in_flight_requests += len(drained.sends)
        return drained

    def _fill(
        self,
        queue: PartitionQueue,
        now_ms: int,
        leader_of: LeaderOf,
        requests: dict[int, list[RequestDraft]],
        drained: Drained,
        *,
        buffer_full: bool,
    ) -> bool:
        """Puts what one partition may send into the requests of its leader."""
        served = False
        place = 0
        while queue.has_unsent and queue.may_send(self._in_flight_max):
            node_id = leader_of(queue.topic, queue.partition)
            if queue.is_paused(now_ms, node_id):
                drained.by(queue.pause_until_ms)
                break
            if not self._head_is_due(queue, now_ms, drained, buffer_full=buffer_full):
                break
            if not self._may_number(queue):
                break
            if node_id is None:
                drained.unknown_topics.add(queue.topic)
                break
            place = self._place(requests.setdefault(node_id, []), node_id, queue.waiting[0], place)
            if place < 0:
                break
            batch = queue.take()
            queue.note_leader(node_id)
            self._number(queue, batch)
            requests[node_id][place].add(batch)
            place += 1
            served = True
        return served

    def _head_is_due(
        self, queue: PartitionQueue, now_ms: int, drained: Drained, *, buffer_full: bool
    ) -> bool:
        """Whether the first batch may leave; seals the open one when its time has come."""
        if queue.waiting:
            return True
        batch = queue.open
        if batch is None:
            return False
        assert batch.opened_ms is not None
        linger_until_ms = batch.opened_ms + self._config.linger_ms
        flush_now = batch.flush_now and not queue.in_flight
        if buffer_full or flush_now or linger_until_ms <= now_ms:
            queue.close_open()
            return True
        drained.by(linger_until_ms)
        return False

    def _place(self, filled: list[RequestDraft], node_id: int, batch: Batch, place: int) -> int:
        """The index of the request that takes the batch, from `place` on; -1 for none."""
        limit = self._config.request_bytes
        while place < len(filled) and filled[place].size_bytes + batch.size_bytes > limit:
            place += 1
        if place == len(filled):
            if self._node_requests.get(node_id, 0) >= REQUESTS_PER_NODE_MAX:
                return -1
            self._node_requests[node_id] = self._node_requests.get(node_id, 0) + 1
            filled.append(RequestDraft())
        return place

    def _may_number(self, queue: PartitionQueue) -> bool:
        if not self._epoch.is_wanted:
            return True
        return queue.waiting[0].uncertain

    def _number(self, queue: PartitionQueue, batch: Batch) -> None:
        """Encodes a batch that leaves for the first time, and gives it its sequence."""
        if batch.payload is not None:
            return
        sequence = queue.next_sequence if self._idempotent else NO_SEQUENCE
        batch.encode(self._config.codec, self._epoch.producer_id, self._epoch.epoch, sequence)
        if self._idempotent:
            queue.next_sequence = batch.next_sequence

    def _expire(self, queue: PartitionQueue, now_ms: int, drained: Drained) -> None:
        """Gives up what is over its delivery deadline; batches in flight keep their place."""
        timeout_ms = self._config.delivery_timeout_ms
        oldest = queue.oldest()
        if oldest is None:
            return
        assert oldest.opened_ms is not None
        if oldest.opened_ms + timeout_ms > now_ms:
            drained.by(oldest.opened_ms + timeout_ms)
            return
        for batch in queue.batches():
            if batch.settled:
                continue
            assert batch.opened_ms is not None
            deadline_ms = batch.opened_ms + timeout_ms
            if deadline_ms > now_ms:
                drained.by(deadline_ms)
                return
            is_certain = not batch.uncertain and batch not in queue.in_flight
            error = DeliveryTimeout(
                f"no ack for {counted(batch.record_count, 'record')} to "
                f"{queue.topic}-{queue.partition} within delivery_timeout_ms={timeout_ms}; "
                + ("nothing was written" if is_certain else "the log may have what was sent")
                + (f". The last attempt: {queue.last_error}" if queue.last_error else "")
            )
            error.__cause__ = queue.last_error
            if batch in queue.in_flight:
                batch.fail(error)
            elif batch is queue.open:
                queue.open = None
                batch.fail(error)
            else:
                queue.waiting.remove(batch)
                self._give_up(queue, batch, error)
            drained.settled.append(batch)

    # Answers

    def on_answer(
        self, send: Send, results: tuple[ProducePartitionResult, ...], now_ms: int
    ) -> list[Batch]:
        """The broker answered the request."""
        self._request_ended(send)
        by_partition = {(result.topic, result.partition): result for result in results}
        settled: list[Batch] = []
        for batch in send.batches:
            queue = self.queue(batch.topic, batch.partition)
            result = by_partition.get((batch.topic, batch.partition))
            if result is None:
                queue.mark_uncertain(batch)
                missing = broker_error(-1, "the broker's answer leaves this partition out")
                self._retry(queue, batch, missing, now_ms, settled)
            elif result.error_code == ErrorCode.NONE:
                self._acked(queue, batch, result.base_offset, result.log_append_time_ms, settled)
            else:
                about = f"{batch.topic}-{batch.partition}"
                error = broker_error(result.error_code, result.error_message, about=about)
                self._refused(queue, batch, error, now_ms, settled)
        return settled

    def on_posted(self, send: Send) -> list[Batch]:
        """The request left, and the broker does not answer it (`acks=0`)."""
        self._request_ended(send)
        settled: list[Batch] = []
        for batch in send.batches:
            self._acked(self.queue(batch.topic, batch.partition), batch, -1, -1, settled)
        return settled

    def on_request_failed(self, send: Send, error: MillraceError, now_ms: int) -> list[Batch]:
        """No answer will come. Batches that may have arrived become uncertain."""
        self._request_ended(send)
        settled: list[Batch] = []
        for batch in send.batches:
            queue = self.queue(batch.topic, batch.partition)
            self.stale_topics.add(batch.topic)
            if not isinstance(error, _NEVER_LEFT):
                queue.mark_uncertain(batch)
            if error.retriable:
                self._retry(queue, batch, error, now_ms, settled)
            else:
                self._fail(queue, batch, error, settled)
        return settled

    def _acked(
        self,
        queue: PartitionQueue,
        batch: Batch,
        base_offset: int,
        log_append_time_ms: int,
        settled: list[Batch],
    ) -> None:
        queue.acknowledge(batch)
        queue.attempts = 0
        queue.last_error = None
        queue.pause_until_ms = 0
        if not batch.settled:
            batch.ack(base_offset, log_append_time_ms)
            settled.append(batch)

    def _refused(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: MillraceError,
        now_ms: int,
        settled: list[Batch],
    ) -> None:
        code = error.code
        if code in _UNDECIDED:
            queue.mark_uncertain(batch)
        if code is not None and (code in _MAY_BE_CUT_OFF or ERROR_TRAITS[code].refresh_metadata):
            self.stale_topics.add(batch.topic)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._idempotent:
            queue.mark_absent_from(batch)
            if queue.is_oldest(batch):
                self._epoch.is_wanted = True
            self._retry(queue, batch, error, now_ms, settled, pause=False)
        elif code is ErrorCode.UNKNOWN_PRODUCER_ID and self._idempotent:
            self._epoch.is_wanted = True
            if not queue.acked:
                # The broker has yet to see this producer here, so what was sent is not there.
                queue.mark_absent_from(batch)
            if batch.uncertain:
                sentence = f"{error}; whether these records were written before is not known"
                self._fail(queue, batch, UnknownProducerId(sentence, code=code), settled)
            else:
                self._retry(queue, batch, error, now_ms, settled, pause=False)
        elif isinstance(error, ProducerFenced):
            self._epoch.forget()
            self._fail(queue, batch, error, settled)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and self._may_split(batch):
            self._split(queue, batch, settled)
        elif error.retriable:
            self._retry(queue, batch, error, now_ms, settled)
        else:
            self._fail(queue, batch, error, settled)

    def _may_split(self, batch: Batch) -> bool:
        """Whether a batch that is too large may go in parts: one that may be in the log may not."""
        return batch.count > 1 and not (batch.settled or batch.uncertain)

    def _split(self, queue: PartitionQueue, batch: Batch, settled: list[Batch]) -> None:
        queue.batch_bytes_max = min(queue.batch_bytes_max, batch.size_bytes // 2)
        parts = split(batch, self._config.codec, self._epoch.producer_id, self._epoch.epoch)
        queue.replace(batch, parts)
        settled.append(batch)

    def _retry(
        self,
        queue: PartitionQueue,
        batch: Batch,
        error: MillraceError,
        now_ms: int,
        settled: list[Batch],
        *,
        pause: bool = True,
    ) -> None:
        """Puts a batch back; one that was given up while in flight goes for good."""
        if batch.settled:
            self._fail(queue, batch, error, settled)
            return
        queue.put_back(batch)
        queue.last_error = self.last_error = error
        if pause:
            queue.pause_until_ms = now_ms + self._backoff_ms(queue.attempts)
            queue.attempts += 1

    def _fail(
        self, queue: PartitionQueue, batch: Batch, error: MillraceError, settled: list[Batch]
    ) -> None:
        queue.in_flight.remove(batch)
        if not batch.settled:
            settled.append(batch)
        self._give_up(queue, batch, error)

    def _give_up(self, queue: PartitionQueue, batch: Batch, error: MillraceError) -> None:
        """Settles a batch that is in no list any more, and sees to the gap it may leave."""
        if self._idempotent and batch.sequence != NO_SEQUENCE:
            if queue.ends_sequence(batch) and not batch.uncertain:
                queue.next_sequence = batch.sequence
            else:
                self._epoch.is_wanted = True
        if not batch.settled:
            batch.fail(error)

    def _request_ended(self, send: Send) -> None:
        self.in_flight_requests -= 1
        self._node_requests[send.node_id] -= 1

    def _backoff_ms(self, attempt: int) -> int:
        config = self._config
        return backoff_ms(
            attempt,
            first_ms=config.retry_backoff_ms,
            max_ms=config.retry_backoff_max_ms,
            rng=self._rng,
        )

    # The producer's epoch

    def _ask_epoch(self, drained: Drained, now_ms: int) -> None:
        if not self._epoch.may_be_asked_for or self.in_flight_requests:
            return
        if not self._active or any(b.uncertain for q in self._active for b in q.waiting):
            return
        if self._epoch.pause_until_ms > now_ms:
            drained.by(self._epoch.pause_until_ms)
            return
        drained.wants_epoch = self._epoch.ask()

    def on_producer_id(self, producer_id: int, epoch: int) -> None:
        """InitProducerId was answered: every partition starts again at sequence 0."""
        self._epoch.begin(producer_id, epoch)
        for queue in self._queues.values():
            queue.renumber(producer_id, epoch)

    def on_producer_id_failed(self, error: MillraceError, now_ms: int) -> list[Batch]:
        """InitProducerId failed: asks again later, or fails all batches where no retry helps."""
        if error.retriable:
            self._epoch.retry_at(now_ms + self._backoff_ms(self._epoch.attempts))
            return []
        self._epoch.forget()
        return self.fail_all(error)

    def fail_all(self, error: MillraceError, *, topic: str | None = None) -> list[Batch]:
        """Settles all batches, or all of a topic; those in flight stay until their request ends."""
        settled: list[Batch] = []
        for queue in self._active:
            if topic is None or queue.topic == topic:
                settled += [batch for batch in queue.batches() if not batch.settled]
                queue.open = None
                queue.waiting.clear()
        for batch in settled:
            self._epoch.is_wanted |= batch.sequence != NO_SEQUENCE
            batch.fail(error)
        return settled
