"""The producer's pure half against a model of a broker: nothing lost, doubled or out of order."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millrace._producer.accumulator import Accumulator
from millrace._producer.arrow_columns import ArrowColumns
from millrace._producer.batch import Batch
from millrace._producer.columns import Columns
from millrace._producer.produce_queue import ProduceQueue
from millrace._producer.produce_requests import Send
from millrace._producer.receipts import Deliveries, Delivery, Receipts
from millrace.config import Acks, ProducerConfig
from millrace.errors import (
    BufferFull,
    ConnectionFailed,
    ConnectionLost,
    DeliveryTimeout,
    MessageTooLarge,
    MillraceError,
    UnknownProducerId,
    UnknownTopicOrPartition,
)
from millrace.partitioner import by_key
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.produce import ProducePartitionResult
from millrace_protocol.records import decode_records
from tests.clients.fake_broker import Log, Refuse

PARTITIONS = 2


def place(delivery: Delivery | OneOfMany) -> tuple[Batch, int]:
    return delivery.place()


class OneOfMany:
    """One record of a `send_many`, seen like that of a `send`."""

    def __init__(self, deliveries: Deliveries, index: int) -> None:
        self.deliveries = deliveries
        self.index = index
        self._last_place: tuple[Batch, int] | None = None

    def is_in_a_batch(self) -> bool:
        return self.index < self.deliveries._taken

    def place(self) -> tuple[Batch, int]:
        if self._last_place is None or not self._last_place[0].settled:
            runs, order = self.deliveries._runs, self.deliveries._order
            self._last_place = Delivery.of(*Receipts(runs, order).place(self.index)).place()
        return Delivery.of(*self._last_place).place()

    def done(self) -> bool:
        return self.is_in_a_batch() and self.place()[0].settled


class NoOwner:
    async def settle(self, batch: Batch) -> None:
        raise AssertionError("no caller waits in these tests")

    async def settle_after_linger(self, batch: Batch) -> None:
        raise AssertionError("no caller waits in these tests")

    async def room(self) -> None:
        raise AssertionError("no caller waits in these tests")


class Rig:
    """An accumulator and an outbox with a clock that is set by hand."""

    def __init__(self, **options: object) -> None:
        settings: dict[str, object] = {
            "batch_bytes": 200,
            "max_request_bytes": 400,
            "buffer_bytes": 2000,
            "linger_ms": 5,
            "delivery_timeout_ms": 1000,
            **options,
        }
        self.config = ProducerConfig(**settings)  # type: ignore[arg-type]
        self.now_ms = 0
        self.produce_queue = ProduceQueue(self.config, rng=random.Random(1))
        self.accumulator = Accumulator(
            self.config, self.produce_queue, owner=NoOwner(), rng=random.Random(1)
        )
        self.settled: list[Batch] = []
        self.leader: int | None = 0

    def send(self, value: bytes, partition: int | None = 0, topic: str = "t") -> Delivery:
        batch = self.accumulator.append(topic, partition, None, value, (), 0)
        return Delivery.of(batch, len(batch.values) - 1)

    def send_many(
        self,
        values: Sequence[bytes | None],
        partition: int | None = None,
        keys: list[bytes | None] | None = None,
    ) -> Deliveries:
        return self.accumulator.take("t", partition, Columns(values, keys, None, 0))

    def send_arrow(self, values: Sequence[bytes | None], partition: int | None) -> Deliveries:
        columns = ArrowColumns.of(pa.array(values, pa.binary()), None, 0)
        return self.accumulator.take("t", partition, columns)

    def send_alone(self, value: bytes) -> tuple[Delivery, Send]:
        """A record in a request of its own, on its way."""
        delivery = self.send(value)
        self.accumulator.seal_all()
        (send,), _ = self.drain()
        return delivery, send

    def drain(self) -> tuple[list[Send], tuple[int, int] | None]:
        drained = self.produce_queue.drain(
            self.now_ms, lambda *_: self.leader, buffer_full=not self.accumulator.has_room
        )
        self.settle(drained.settled)
        return drained.sends, drained.wants_epoch

    def settle(self, batches: list[Batch]) -> None:
        assert all(batch.settled for batch in batches)
        self.accumulator.release(batches)
        self.settled += batches
        self.accumulator.feed()

    def with_producer_id(self) -> Rig:
        self.accumulator.assign("t", PARTITIONS)
        self.send(b"first")
        self.accumulator.seal_all()
        _, wants = self.drain()
        assert wants == (-1, -1)
        self.produce_queue.on_producer_id(7, 0)
        (send,), _ = self.drain()
        self.answer(send, 0)
        return self

    def fail(self, send: Send, error: MillraceError) -> None:
        self.settle(self.produce_queue.on_request_failed(send, error, self.now_ms))

    def answer(self, send: Send, code: int, base_offset: int = 0) -> None:
        results = tuple(
            ProducePartitionResult(b.topic, b.partition, code, None, base_offset, -1, 0)
            for b in send.batches
        )
        self.settle(self.produce_queue.on_answer(send, results, self.now_ms))


class ProducerAgainstBroker(RuleBasedStateMachine):
    """Sends, time, answers, lost answers, refusals and new epochs in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: defaultdict[int, Log] = defaultdict(Log)
        self.flying: list[Send] = []
        self.asked: tuple[int, int] | None = None
        self.sent: dict[int, list[tuple[bytes, Delivery | OneOfMany]]] = defaultdict(list)
        self.count = 0

    @initialize(
        known=st.booleans(),
        never_expires=st.booleans(),
        batch_bytes_max=st.sampled_from([10_000, 230]),
    )
    def topic(self, known: bool, never_expires: bool, batch_bytes_max: int) -> None:
        self.never_expires = never_expires
        self.batch_bytes_max = batch_bytes_max
        self.rig = Rig(delivery_timeout_ms=10**9 if never_expires else 1000)
        if known:
            self.rig.settle(self.rig.accumulator.assign("t", PARTITIONS))
            self.send(0, 150)
            self.answer_producer_id(works=True)

    @rule()
    def learn_topic(self) -> None:
        self.rig.settle(self.rig.accumulator.assign("t", PARTITIONS))
        self.drain()

    @rule(partition=st.integers(0, PARTITIONS - 1), size=st.sampled_from([0, 20, 150, 150]))
    def send(self, partition: int, size: int) -> None:
        self.count += 1
        value = b"%06d" % self.count + bytes(size)
        try:
            delivery = self.rig.send(value, partition)
        except BufferFull:
            accumulator = self.rig.accumulator
            assert accumulator.backlog or accumulator.buffered_bytes + size + 100 > 2000
        else:
            self.sent[partition].append((value, delivery))
        self.drain()

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        key_numbers=st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=9),
        count=st.sampled_from([1, 5, 16]),
        size=st.sampled_from([0, 20, 150]),
        is_arrow=st.booleans(),
    )
    def send_many(
        self,
        partition: int,
        key_numbers: list[int] | None,
        count: int,
        size: int,
        is_arrow: bool,
    ) -> None:
        values = [b"%06d" % (self.count + i) + bytes(size) for i in range(1, count + 1)]
        self.count += count
        keys: list[bytes | None] | None = None
        partitions = [partition] * count
        if key_numbers is not None:
            keys = [b"%d" % key_numbers[i % len(key_numbers)] for i in range(count)]
            partitions = [by_key("t", key, PARTITIONS) or 0 for key in keys]
        try:
            if is_arrow and key_numbers is None:
                deliveries = self.rig.send_arrow(values, partition)
            else:
                deliveries = self.rig.send_many(
                    values, None if key_numbers is not None else partition, keys
                )
        except BufferFull:
            assert self.rig.accumulator.backlog
        else:
            for index, (value, chosen) in enumerate(zip(values, partitions, strict=True)):
                self.sent[chosen].append((value, OneOfMany(deliveries, index)))
        self.drain()

    @rule(ms=st.sampled_from([5, 60, 1000]))
    def pass_time(self, ms: int) -> None:
        self.rig.now_ms += ms
        self.drain()

    def drain(self) -> None:
        sends, wants = self.rig.drain()
        self.flying += sends
        if wants is not None:
            assert self.asked is None
            assert not self.flying
            self.asked = wants

    @precondition(lambda self: self.asked)
    @rule(works=st.booleans())
    def answer_producer_id(self, works: bool) -> None:
        assert self.asked is not None
        producer_id, epoch = self.asked
        self.asked = None
        if not works:
            error = ConnectionLost("gone")
            self.rig.settle(self.rig.produce_queue.on_producer_id_failed(error, self.rig.now_ms))
        elif producer_id < 0:
            self.rig.produce_queue.on_producer_id(7, 0)
        else:
            self.rig.produce_queue.on_producer_id(producer_id, epoch + 1)
        self.drain()

    @precondition(lambda self: self.flying)
    @rule(
        which=st.integers(0, 4),
        fate=st.sampled_from(["answered", "answer lost", "never left", "lost", "slow"]),
    )
    def request_ends(self, which: int, fate: str) -> None:
        # A broker works on one connection's requests in order; one that is lost may be any.
        send = self.flying.pop(min(which, len(self.flying) - 1) if fate == "lost" else 0)
        settled: list[Batch]
        if fate == "never left":
            error: MillraceError = ConnectionFailed("no broker")
            settled = self.rig.produce_queue.on_request_failed(send, error, self.rig.now_ms)
        elif fate == "lost":
            settled = self.rig.produce_queue.on_request_failed(
                send, ConnectionLost("x"), self.rig.now_ms
            )
        else:
            results = self._append(send)
            if fate == "answer lost":
                error = ConnectionLost("gone")
                settled = self.rig.produce_queue.on_request_failed(send, error, self.rig.now_ms)
            else:
                if fate == "slow":
                    timed_out = ErrorCode.REQUEST_TIMED_OUT
                    results = [
                        ProducePartitionResult("t", r.partition, timed_out, None, -1, -1, -1)
                        for r in results
                    ]
                settled = self.rig.produce_queue.on_answer(send, tuple(results), self.rig.now_ms)
        self.rig.settle(settled)
        self.drain()

    @precondition(lambda self: self.flying)
    @rule(processed=st.lists(st.booleans(), min_size=10, max_size=10))
    def connection_dies(self, processed: list[bool]) -> None:
        # The broker may go on with what it had read.
        flying, self.flying = self.flying, []
        for send, is_processed in zip(flying, processed, strict=False):
            if is_processed:
                self._append(send)
        for send in flying:
            error = ConnectionLost("gone")
            self.rig.settle(self.rig.produce_queue.on_request_failed(send, error, self.rig.now_ms))
        self.drain()

    @precondition(lambda self: self.flying)
    @rule(code=st.sampled_from([ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_LEADER_OR_FOLLOWER]))
    def request_is_refused(self, code: ErrorCode) -> None:
        self.rig.answer(self.flying.pop(0), code)
        self.drain()

    def _append(self, send: Send) -> list[ProducePartitionResult]:
        results = []
        for batch in send.batches:
            code, offset = ErrorCode.NONE, -1
            # A batch that was given up while its request waited for a connection is left out.
            if batch.payload is None:
                continue
            if len(batch.payload) > self.batch_bytes_max:
                code = ErrorCode.MESSAGE_TOO_LARGE
            else:
                try:
                    offset = self.logs[batch.partition].append(bytes(batch.payload))
                except Refuse as refuse:
                    code = refuse.code
            results.append(ProducePartitionResult("t", batch.partition, code, None, offset, -1, 0))
        return results

    @invariant()
    def bytes_are_bounded_and_accounted_for(self) -> None:
        accumulator = self.rig.accumulator
        assert 0 <= accumulator.buffered_bytes <= 2000
        unsettled = [d for sent in self.sent.values() for _, d in sent if not d.done()]
        waiting = [d for d in unsettled if isinstance(d, OneOfMany) and not d.is_in_a_batch()]
        assert accumulator.buffered_records == len(unsettled) - len(waiting)
        assert bool(waiting) == (accumulator.backlog is not None)

    @invariant()
    def each_log_is_in_order_without_doubles_and_has_all_that_was_acked(self) -> None:
        for partition, log in self.logs.items():
            values = [record[3] for record in log.records()]
            assert values == sorted(set(values), key=lambda value: value or b"")
            for value, delivery in self.sent[partition]:
                if delivery.done():
                    batch, index = place(delivery)
                    if batch.error is None:
                        assert values[batch.receipt(index).offset] == value

    def teardown(self) -> None:
        """The broker is well again: everything is settled, and acked where time is no matter."""
        if not hasattr(self, "rig"):
            return
        self.learn_topic()
        self.rig.accumulator.seal_all()
        settled_before = len(self.rig.settled)
        for _ in range(400):
            self.drain()
            if self.asked is not None:
                self.answer_producer_id(works=True)
            while self.flying:
                self.request_ends(which=0, fate="answered")
            self.rig.now_ms += 20
            if not self.rig.accumulator.buffered_records:
                break
        assert self.rig.accumulator.buffered_records == 0
        assert self.rig.accumulator.buffered_bytes == 0
        assert self.rig.produce_queue.in_flight_requests == 0
        if self.never_expires:
            for batch in self.rig.settled[settled_before:]:
                if batch.error is not None:
                    # One that may be in the log is not split.
                    assert isinstance(batch.error, MessageTooLarge)
                    assert batch.uncertain and self.batch_bytes_max < 300
        self.each_log_is_in_order_without_doubles_and_has_all_that_was_acked()


TestProducerAgainstBroker = ProducerAgainstBroker.TestCase
TestProducerAgainstBroker.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)


def test_a_batch_leaves_when_its_linger_is_over_and_not_before() -> None:
    rig = Rig().with_producer_id()
    rig.send(b"x")
    assert rig.drain()[0] == []
    rig.now_ms += 4
    assert rig.drain()[0] == []
    rig.now_ms += 1
    assert len(rig.drain()[0]) == 1


def test_a_full_batch_leaves_at_once() -> None:
    rig = Rig().with_producer_id()
    for _ in range(3):
        rig.send(bytes(90))
    sends, _ = rig.drain()
    assert [batch.count for send in sends for batch in send.batches] == [1, 1]


def test_at_most_five_batches_of_a_partition_are_in_flight() -> None:
    rig = Rig(buffer_bytes=100_000).with_producer_id()
    for _ in range(20):
        rig.send(bytes(150))
    sends, _ = rig.drain()
    assert len(sends) == 5


def test_no_batch_leaves_that_would_push_an_unacked_one_out_of_the_brokers_memory() -> None:
    rig = Rig(buffer_bytes=100_000).with_producer_id()
    for _ in range(20):
        rig.send(bytes(150))
    flying, _ = rig.drain()
    rig.settle(rig.produce_queue.on_request_failed(flying[0], ConnectionLost("gone"), rig.now_ms))
    for send in flying[1:]:
        rig.answer(send, 0)
    rig.now_ms += 100
    (again,), _ = rig.drain()
    assert again.batches == flying[0].batches
    rig.answer(again, 0)
    assert len(rig.drain()[0]) == 5


def test_a_batch_that_was_overtaken_still_counts_as_the_oldest_in_flight() -> None:
    rig = Rig(buffer_bytes=100_000).with_producer_id()
    for _ in range(20):
        rig.send(bytes(150))
    flying, _ = rig.drain()
    for send in flying[1:]:
        rig.answer(send, 0)
    assert rig.drain()[0] == []
    rig.answer(flying[0], 0)
    assert len(rig.drain()[0]) == 5


@pytest.mark.parametrize("acks", ["all", 1])
def test_with_idempotence_five_batches_of_a_partition_are_in_flight(acks: Acks) -> None:
    rig = Rig(acks=acks, buffer_bytes=100_000).with_producer_id()
    for _ in range(20):
        rig.send(bytes(150))
    flying, _ = rig.drain()
    assert len(flying) == 5
    rig.answer(flying[0], 0)
    assert len(rig.drain()[0]) == 1


def test_with_acks_1_a_leader_that_lost_acked_batches_is_written_to_under_a_new_epoch() -> None:
    rig = Rig(acks=1, buffer_bytes=100_000).with_producer_id()
    _, lost = rig.send_alone(b"acked by a leader that is gone")
    rig.answer(lost, 0, 1)
    deliveries = [rig.send(bytes(150)) for _ in range(3)]
    flying, _ = rig.drain()
    for send in flying:
        rig.answer(send, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert rig.drain() == ([], (7, 0))
    rig.produce_queue.on_producer_id(7, 1)
    rig.accumulator.seal_all()
    written: list[int] = []
    while not all(delivery.done() for delivery in deliveries):
        for send in rig.drain()[0]:
            written += [batch.sequence for batch in send.batches]
            rig.answer(send, 0, len(written))
    assert written == [0, 1, 2]
    assert [delivery.place()[0].receipt(0).offset for delivery in deliveries] == [1, 2, 3]


@pytest.mark.parametrize("options", [{"acks": 0}, {"idempotent": False}])
def test_without_idempotence_one_batch_of_a_partition_is_in_flight(
    options: dict[str, object],
) -> None:
    rig = Rig(**options)
    rig.accumulator.assign("t", 1)
    for _ in range(4):
        rig.send(bytes(150))
    first, wants = rig.drain()
    assert (len(first), wants) == (1, None)
    rig.answer(first[0], 0)
    assert len(rig.drain()[0]) == 1


def test_a_batch_goes_to_another_leader_without_a_pause() -> None:
    rig = Rig(delivery_timeout_ms=60_000).with_producer_id()
    _, send = rig.send_alone(b"x")
    for _ in range(8):
        rig.fail(send, ConnectionFailed("no broker"))
        assert rig.drain()[0] == []
        rig.now_ms += rig.config.retry_backoff_max_ms
        (send,), _ = rig.drain()
    rig.fail(send, ConnectionFailed("no broker"))
    assert rig.drain()[0] == []
    rig.leader = 1
    (send,), _ = rig.drain()
    assert send.node_id == 1
    rig.answer(send, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert rig.drain()[0] == []
    rig.now_ms += rig.config.retry_backoff_ms
    assert len(rig.drain()[0]) == 1, "the new leader is asked as patiently as a first one"


def test_a_refused_batch_gives_its_sequence_to_the_next_one() -> None:
    rig = Rig().with_producer_id()
    _, send = rig.send_alone(b"too large, says the broker")
    refused = send.batches[0].sequence
    rig.answer(send, ErrorCode.MESSAGE_TOO_LARGE)
    _, send = rig.send_alone(b"y")
    assert send.batches[0].sequence == refused


def test_a_forgotten_producer_goes_on_with_a_new_epoch_where_nothing_is_uncertain() -> None:
    rig = Rig().with_producer_id()
    delivery, send = rig.send_alone(b"x")
    rig.answer(send, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert rig.produce_queue.stale_topics == {"t"}
    sends, wants = rig.drain()
    assert (sends, wants) == ([], (7, 0))
    rig.produce_queue.on_producer_id(7, 1)
    (send,), _ = rig.drain()
    assert (send.batches[0].sequence, delivery.done()) == (0, False)


def test_an_uncertain_batch_of_a_forgotten_producer_is_not_sent_again() -> None:
    rig = Rig().with_producer_id()
    delivery, send = rig.send_alone(b"x")
    rig.settle(rig.produce_queue.on_request_failed(send, ConnectionLost("gone"), rig.now_ms))
    rig.now_ms += 900
    (send,), _ = rig.drain()
    rig.answer(send, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert delivery.done()
    with pytest.raises(UnknownProducerId):
        place(delivery)[0].receipt(0)


def test_a_record_without_ack_in_time_fails_and_tells_whether_it_may_be_written() -> None:
    rig = Rig().with_producer_id()
    rig.leader = None
    delivery = rig.send(b"x")
    rig.drain()
    rig.now_ms += 1000
    rig.drain()
    with pytest.raises(DeliveryTimeout, match="nothing was written"):
        place(delivery)[0].receipt(0)


def test_an_outbox_that_cannot_send_asks_to_be_looked_at_only_for_deadlines() -> None:
    rig = Rig().with_producer_id()
    rig.leader = None
    rig.send(b"x")
    rig.now_ms += 50
    rig.drain()
    rig.now_ms += 10
    drained = rig.produce_queue.drain(rig.now_ms, lambda *_: None, buffer_full=False)
    assert drained.unknown_topics == {"t"}
    assert drained.deadline_ms == rig.now_ms - 10 + 1000


def test_a_record_for_a_partition_that_is_not_there_is_refused() -> None:
    rig = Rig()
    early = rig.send(b"x", 9)
    rig.settle(rig.accumulator.assign("t", PARTITIONS))
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1"):
        place(early)[0].receipt(0)
    with pytest.raises(UnknownTopicOrPartition, match="partition 9"):
        rig.send(b"x", 9)
    assert rig.accumulator.buffered_bytes == 0


def test_a_record_larger_than_a_request_is_refused_and_not_held() -> None:
    rig = Rig()
    rig.accumulator.assign("t", 1)
    with pytest.raises(MessageTooLarge, match="max_request_bytes=400"):
        rig.send(bytes(400))
    assert rig.accumulator.buffered_bytes == 0


def test_records_without_a_key_stay_in_one_partition_until_its_batch_is_full() -> None:
    rig = Rig(buffer_bytes=100_000)
    rig.accumulator.assign("t", PARTITIONS)
    partitions = [place(rig.send(bytes(30), None))[0] for _ in range(40)]
    batches = list(dict.fromkeys(partitions))
    assert len(batches) == 10
    assert all(a.partition != b.partition for a, b in pairwise(batches))


@pytest.mark.parametrize("size", [0, 1, 50, 150])
def test_columns_fill_batches_like_single_records(size: int) -> None:
    rig = Rig(buffer_bytes=1_000_000)
    rig.accumulator.assign("t", 1)
    values: list[bytes | None] = [b"%03d" % i + bytes(size) for i in range(100)]
    runs = rig.send_many(values)._runs
    batches = list(dict.fromkeys(batch for batch, _, _ in runs))
    found = [value for batch, first, count in runs for value in batch.values[first : first + count]]
    assert found == values
    assert all(batch.size_bytes <= 200 for batch in batches)
    assert rig.accumulator.buffered_bytes == sum(batch.size_bytes for batch in batches)


def test_input_beyond_the_buffer_waits_in_order() -> None:
    rig = Rig().with_producer_id()
    values = [b"%03d" % i + bytes(50) for i in range(100)]
    held = list(values)
    deliveries = rig.send_many(held, 0)
    held.clear()
    assert 0 < rig.accumulator.buffered_bytes <= 2000
    assert not deliveries.done()
    assert not rig.accumulator.has_room
    with pytest.raises(BufferFull, match="earlier send_many"):
        rig.send(b"")
    with pytest.raises(BufferFull, match="earlier send_many"):
        rig.send_many([b""])
    arrived = []
    while not deliveries.done():
        rig.now_ms += 5
        sends, _ = rig.drain()
        for send in sends:
            for batch in send.batches:
                records = decode_records(bytes(batch.payload or b""))
                arrived += [record[3] for record in records]
            rig.answer(send, 0)
    assert arrived == values
    assert rig.accumulator.has_room


def test_a_record_that_is_too_large_fails_alone() -> None:
    rig = Rig()
    rig.accumulator.assign("t", 1)
    deliveries = rig.send_many([b"a", bytes(400), b"b"])
    outcomes = [OneOfMany(deliveries, index).place()[0] for index in range(3)]
    (refused,) = rig.accumulator.refused()
    assert outcomes[1] is refused
    assert isinstance(refused.error, MessageTooLarge)
    assert outcomes[0] is outcomes[2]
    assert outcomes[0].values == [b"a", b"b"]


def test_a_batch_that_is_too_large_goes_in_parts_and_later_ones_are_smaller() -> None:
    rig = Rig(buffer_bytes=100_000).with_producer_id()
    deliveries = [rig.send(b"%02d" % i + bytes(28)) for i in range(10)]
    rig.accumulator.seal_all()
    flying, _ = rig.drain()
    assert [batch.count for send in flying for batch in send.batches] == [4, 4, 2]
    rig.answer(flying[0], ErrorCode.MESSAGE_TOO_LARGE)
    for send in flying[1:]:
        rig.answer(send, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    # What came after it has the sequences it had; until a part is acked one batch is on its way.
    rounds, offset = [], 1
    while not all(delivery.done() for delivery in deliveries):
        flying, _ = rig.drain()
        batches = [batch for send in flying for batch in send.batches]
        rounds.append([batch.count for batch in batches])
        for send, batch in zip(flying, batches, strict=True):
            assert batch.sequence == offset
            rig.answer(send, ErrorCode.NONE, offset)
            offset += batch.count
    assert rounds == [[2], [2, 4, 2]]
    places = [delivery.place() for delivery in deliveries]
    assert [batch.receipt(index).offset for batch, index in places] == [*range(1, 11)]
    later = {rig.send(bytes(30)).place()[0]: None for _ in range(10)}
    assert [batch.record_count for batch in later] == [2] * 5
    assert rig.accumulator.buffered_bytes == sum(batch.size_bytes for batch in later)


def test_a_batch_that_may_be_in_the_log_is_not_split() -> None:
    rig = Rig(buffer_bytes=100_000).with_producer_id()
    delivery = rig.send(b"a")
    rig.send(b"b")
    rig.accumulator.seal_all()
    (send,), _ = rig.drain()
    rig.settle(rig.produce_queue.on_request_failed(send, ConnectionLost("gone"), rig.now_ms))
    rig.now_ms += 100
    (again,), _ = rig.drain()
    rig.answer(again, ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(MessageTooLarge):
        delivery.place()[0].receipt(0)


def test_records_that_waited_for_partitions_go_where_they_would_have_gone() -> None:
    rig = Rig(buffer_bytes=1_000_000)
    keys: list[bytes | None] = [b"%d" % (i % 7) for i in range(90)]
    values = [b"%03d" % i for i in range(90)]
    many = rig.send_many(values, keys=keys)
    single = [rig.send(b"x%d" % i, i % PARTITIONS) for i in range(20)]
    (unassigned,) = rig.accumulator.assign("t", PARTITIONS)
    assert unassigned.settled
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        batch, inside = OneOfMany(many, index).place()
        assert batch.partition == by_key("t", key, PARTITIONS)
        assert batch.values[inside] == value
    for index, delivery in enumerate(single):
        batch, inside = delivery.place()
        assert batch.partition == index % PARTITIONS
        assert batch.values[inside] == b"x%d" % index
