"""The consumer's pure half: however records are taken, each comes once and in order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.fetch_buffer import FetchBuffer
from millrace._consumer.fetch_plan import Plan
from millrace._consumer.offset_lookup import on_looked_up
from millrace._consumer.positions import Positions
from millrace.config import ConsumerConfig
from millrace.errors import ConnectionLost, CorruptMessage
from millrace.records import TopicPartition
from millrace_protocol.messages.fetch import FetchPartitionResult
from millrace_protocol.messages.list_offsets import EARLIEST, ListOffsetsResult
from millrace_protocol.records import encode_batch
from tests.clients.fake_broker import Log

CONFIG = ConsumerConfig(
    max_partition_bytes=400, fetch_max_bytes=800, buffer_bytes=2000, retry_backoff_ms=10
)
LOST = ConnectionLost("the connection was lost")


class Rig:
    """Positions and a reading over logs in memory."""

    def __init__(self, sizes: list[int]) -> None:
        self.now_ms = 0
        self.positions = Positions(CONFIG, rng=random.Random(1), counters=ConsumerCounters())
        self.reading = FetchBuffer(self.positions, key_deserializer=None, value_deserializer=None)
        self.logs = [Log() for _ in range(2)]
        for partition, log in enumerate(self.logs):
            for size in sizes:
                values: list[bytes | None] = [bytes([partition])] * size
                log.append(bytes(encode_batch(values, timestamps_ms=1)))
        self.where = [TopicPartition("t", partition) for partition in range(2)]
        self.positions.assign(self.where, EARLIEST)
        self.got: dict[int, list[int]] = {0: [], 1: []}

    def plan(self) -> Plan:
        return self.positions.plan(self.now_ms, lambda *_: (0, 0))

    def serve(self, plan: Plan, *, works: bool) -> None:
        for lookup in plan.lookups:
            found = tuple(
                ListOffsetsResult(asked.topic, asked.partition, 0, None, -1, 0, 0)
                for asked in lookup.request.partitions
            )
            on_looked_up(self.positions, lookup, found, self.now_ms)
        for fetch in plan.fetches:
            if not works:
                self.positions.on_fetch_failed(fetch, LOST, self.now_ms)
                continue
            results = []
            for wanted in fetch.request.partitions:
                log = self.logs[wanted.partition]
                data = log.read(wanted.fetch_offset, wanted.max_bytes)
                results.append(
                    FetchPartitionResult("t", wanted.partition, 0, None, log.end, 0, -1, data)
                )
            self.positions.on_fetched(fetch, tuple(results), self.now_ms)

    def answer(self, plan: Plan, data: bytes | memoryview, *, high_watermark: int) -> None:
        """Answers the fetches of a plan with the same bytes."""
        for fetch in plan.fetches:
            results = [
                FetchPartitionResult("t", wanted.partition, 0, None, high_watermark, 0, -1, data)
                for wanted in fetch.request.partitions
            ]
            self.positions.on_fetched(fetch, tuple(results), self.now_ms)

    def take_records(self, count: int) -> None:
        for _ in range(count):
            record = next(self.reading.records, None)
            while record is None:
                if not self.reading.advance(self.now_ms):
                    return
                record = next(self.reading.records, None)
            self.got[record.partition].append(record.offset)

    def take_batch(self) -> None:
        batch = self.reading.next_batch(self.now_ms)
        if batch is not None:
            self.got[batch.partition] += [record.offset for record in batch]

    def check(self) -> None:
        assert 0 <= self.positions.buffered_bytes <= CONFIG.buffer_bytes + 1000
        for where in self.where:
            position = self.reading.position(self.positions[where])
            got = self.got[where.partition]
            assert got == list(range(len(got)))
            assert position in (None, len(got))


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 3, 30]), min_size=1, max_size=12),
    steps=st.lists(
        st.sampled_from(
            ["plan", "serve", "serve", "fail", "one", "five", "many", "batch", "give back", "pause"]
        ),
        max_size=60,
    ),
    seek=st.booleans(),
)
def test_each_record_comes_once_and_in_order_however_they_are_taken(
    sizes: list[int], steps: list[str], seek: bool
) -> None:
    rig = Rig(sizes)
    plans: list[Plan] = []
    for step in steps:
        rig.now_ms += 20
        if step == "plan":
            plans.append(rig.plan())
        elif step in ("serve", "fail"):
            plan = plans.pop(0) if plans else rig.plan()
            rig.serve(plan, works=step == "serve")
        elif step == "batch":
            rig.take_batch()
        elif step == "give back":
            rig.reading.give_back()
        elif step == "pause":
            state = rig.positions[rig.where[0]]
            rig.reading.give_back()
            (rig.positions.resume if state.paused else rig.positions.pause)(state)
        else:
            rig.take_records({"one": 1, "five": 5, "many": 100}[step])
        if seek and step == "give back":
            # Going to where one is drops what was read ahead, and answers on their way.
            for where in rig.where:
                rig.reading.drop(rig.positions[where])
                rig.positions.seek(rig.positions[where], len(rig.got[where.partition]))
        rig.check()
    for plan in plans:
        rig.serve(plan, works=True)
    rig.positions.resume(rig.positions[rig.where[0]])
    for _ in range(200):
        rig.now_ms += 2000
        rig.serve(rig.plan(), works=True)
        rig.take_records(1000)
        rig.check()
    assert rig.got == {0: list(range(sum(sizes))), 1: list(range(sum(sizes)))}
    assert rig.positions.buffered_bytes == 0


def answered(
    rig: Rig, data: bytes | memoryview, *, high_watermark: int
) -> tuple[int, int, bytes | memoryview]:
    """What is taken of an answer to the first fetch: from offset, next offset, bytes."""
    rig.positions.assign(rig.where[:1], EARLIEST)
    rig.serve(rig.plan(), works=True)
    rig.answer(rig.plan(), data, high_watermark=high_watermark)
    taken = rig.positions.take(rig.now_ms)
    assert taken is not None
    return taken[1].from_offset, taken[1].next_offset, taken[1].data


def test_records_are_buffered_where_they_lie_unless_that_keeps_a_larger_frame() -> None:
    for before, is_view in ((0, True), (100, True), (10_000, False)):
        rig = Rig([3, 3, 3])
        whole = rig.logs[0].read(0, 10_000)
        frame = bytearray(bytes(before) + whole)
        data = answered(rig, memoryview(frame)[before:], high_watermark=9)[2]
        assert isinstance(data, memoryview) == is_view
        if not is_view:
            frame[:] = bytes(len(frame))
        assert data == whole


@pytest.mark.parametrize("bit", range(64))
def test_a_changed_bit_of_a_base_offset_leads_no_reader_past_records(bit: int) -> None:
    # No CRC covers these eight bytes, so the other batches and the high watermark have to tell.
    rig = Rig([3, 3, 3])
    whole = rig.logs[0].read(0, 10_000)
    second = len(whole) // 3
    damaged = bytearray(whole)
    damaged[second + bit // 8] ^= 1 << bit % 8
    assert answered(rig, bytes(damaged), high_watermark=9) == (0, 3, whole[:second])
    with pytest.raises(CorruptMessage, match="offset 3 is next and the high watermark is 9"):
        rig.positions.take(rig.now_ms)
    assert rig.positions[rig.where[0]].fetch_offset == 3


def test_a_batch_that_leaves_a_gap_and_reaches_into_the_next_one_is_not_believed() -> None:
    rig = Rig([1] * 9)
    whole = rig.logs[0].read(0, 10_000)
    size = len(whole) // 9
    damaged = bytearray(whole)
    damaged[3 * size + 7] = 5
    assert answered(rig, bytes(damaged), high_watermark=9) == (0, 3, whole[: 3 * size])
    with pytest.raises(CorruptMessage, match="offset 3 is next"):
        rig.positions.take(rig.now_ms)


def test_a_gap_between_batches_is_accepted_after_compaction() -> None:
    rig = Rig([3, 3, 3])
    whole = rig.logs[0].read(0, 10_000)
    size = len(whole) // 3
    left = whole[:size] + whole[2 * size :]
    assert answered(rig, left, high_watermark=9) == (0, 9, left)
    assert rig.positions.take(rig.now_ms) is None


def test_a_batch_beyond_the_high_watermark_is_not_believed() -> None:
    rig = Rig([3, 3])
    whole = rig.logs[0].read(0, 10_000)
    first = whole[: len(whole) // 2]
    assert answered(rig, whole, high_watermark=5) == (0, 3, first)
    with pytest.raises(CorruptMessage, match="the high watermark is 5"):
        rig.positions.take(rig.now_ms)
