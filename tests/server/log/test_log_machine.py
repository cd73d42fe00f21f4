"""The log against a plain list, through any order of appends, flushes, crashes and restarts."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millrace_protocol.records import assign, encode_batch
from millrace_server.log import LogConfig, PartitionLog
from millrace_simulation.disk import FaultyDisk
from tests.server.log.log_model import DIRECTORY, LogModel, append, fetch
from tests.server.log.times import first_at_or_after, newest

TIMES = st.integers(min_value=0, max_value=30)
PRODUCER = 5


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.model = LogModel()
        self.boundaries = [0]
        self.epochs: list[int] = []
        """The leader epoch of each record."""
        self.remembered_from = 0
        """A truncation forgets the batches that retention had removed before."""

    @initialize(
        segment_bytes=st.sampled_from([150, 700, 10**6]),
        index_interval_bytes=st.sampled_from([0, 200, 4096]),
        retention_bytes=st.sampled_from([-1, 800]),
        retention_ms=st.sampled_from([-1, 10]),
    )
    def create(
        self,
        segment_bytes: int,
        index_interval_bytes: int,
        retention_bytes: int,
        retention_ms: int,
    ) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            retention_bytes=retention_bytes,
            retention_ms=retention_ms,
        )
        self.log = PartitionLog.create(self.disk, DIRECTORY, self.config)

    @rule(times=st.lists(TIMES, min_size=1, max_size=4), padding=st.sampled_from([0, 30, 300]))
    def append(self, times: list[int], padding: int) -> None:
        first = len(self.model.records)
        values = [b"%d" % (first + i) + b"x" * padding for i in range(len(times))]
        self.model.extend(values, times)
        appended = append(
            self.log,
            values,
            timestamps_ms=times,
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=first,
        )
        assert appended == (first, first + len(times) - 1, -1, False)
        self.boundaries.append(self.log.end_offset)
        self.epochs += [self.log.leader_epoch] * len(times)

    @rule(by=st.integers(min_value=0, max_value=3))
    def begin_epoch(self, by: int) -> None:
        self.log.begin_epoch(self.log.leader_epoch + by)

    @rule(times=st.lists(TIMES, min_size=1, max_size=3), by=st.integers(min_value=0, max_value=2))
    def append_as_follower(self, times: list[int], by: int) -> None:
        epoch = self.log.leader_epoch + by
        batches = b""
        for time in times:
            offset = len(self.model.records)
            value = b"%d" % offset
            batch = encode_batch(
                [value],
                timestamps_ms=time,
                producer_id=PRODUCER,
                producer_epoch=0,
                base_sequence=offset,
            )
            assign(batch, base_offset=offset, leader_epoch=epoch)
            batches += batch
            self.model.extend([value], [time])
            self.boundaries.append(offset + 1)
            self.epochs.append(epoch)
        assert self.log.append_as_follower(batches, now_ms=1000) == len(self.model.records)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        start = self.log.start_offset
        if start:
            # Of a log that is emptied, no producer's batch would be known.
            start = min([b for b in self.boundaries if b > start] or [self.log.end_offset])
        offset = data.draw(st.integers(start, self.log.end_offset))
        self.remembered_from = max(self.remembered_from, self.log.start_offset)
        reached = self.log.truncate_to(offset, high_watermark=0, now_ms=1000)
        assert reached == max(b for b in self.boundaries if b <= offset)
        self.take_off(reached)

    def take_off(self, end_offset: int) -> None:
        """Forgets what is behind the log's end, which is durable."""
        del self.model.records[end_offset:], self.epochs[end_offset:]
        self.boundaries = [boundary for boundary in self.boundaries if boundary <= end_offset]
        self.model.durable = end_offset

    @precondition(lambda self: len(self.boundaries) > 1)
    @rule(back=st.integers(min_value=1, max_value=5))
    def append_again(self, back: int) -> None:
        back = min(back, len(self.boundaries) - 1)
        base, end = self.boundaries[-back - 1], self.boundaries[-back]
        if base < self.remembered_from:
            return
        values = [value or b"" for _, _, value in self.model.records[base:end]]
        repeated = append(
            self.log, values, producer_id=PRODUCER, producer_epoch=0, base_sequence=base
        )
        assert repeated == (base, end - 1, -1, True)

    @rule(checkpoint=st.booleans())
    def flush(self, checkpoint: bool) -> None:
        self.log.flush(checkpoint=checkpoint)
        self.model.durable = len(self.model.records)
        assert self.log.durable_offset == self.model.durable

    @rule(data=st.data(), max_bytes=st.sampled_from([1, 200, 1000, 10**6]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        start = self.log.start_offset
        offset = data.draw(st.integers(start, self.log.end_offset))
        end_offset = data.draw(
            st.sampled_from([b for b in self.boundaries if b >= start] or [start])
        )
        records, reached = fetch(self.log, offset, max_bytes=max_bytes, end_offset=end_offset)
        if offset >= end_offset:
            assert (records, reached) == ([], offset)
        else:
            assert records == self.model.records[offset:reached]
            assert offset < reached <= end_offset

    @rule(timestamp_ms=TIMES, data=st.data())
    def look_up_time(self, timestamp_ms: int, data: st.DataObject) -> None:
        end_offset = data.draw(st.sampled_from(self.boundaries))
        found = first_at_or_after(self.log, timestamp_ms, end_offset=end_offset)
        assert found == self.model.first_at_or_after(timestamp_ms, end_offset)
        assert newest(self.log, end_offset=end_offset) == self.model.newest(end_offset)

    @rule(now_ms=st.sampled_from([0, 20, 50]))
    def retain(self, now_ms: int) -> None:
        self.log.retention(now_ms, high_watermark=self.log.durable_offset)
        assert self.model.start <= self.log.start_offset <= self.log.durable_offset
        self.model.start = self.log.start_offset

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        assert self.disk.open_files == []
        self.model.durable = len(self.model.records)
        self.open()
        assert self.log.recovery.is_clean

    @rule(seed=st.none() | st.integers(0, 2**16))
    def crash(self, seed: int | None) -> None:
        if seed is None:
            self.disk = self.disk.after_kill()
            self.model.durable = len(self.model.records)
        else:
            self.disk = self.disk.after_power_cut(random.Random(seed))
        self.open()

    def open(self) -> None:
        self.log = PartitionLog.open(self.disk, DIRECTORY, self.config, now_ms=0)
        end_offset = self.log.end_offset
        assert self.model.durable <= end_offset <= len(self.model.records)
        assert end_offset in self.boundaries
        # A start that was not written down may come back, never beyond what was seen.
        assert self.log.start_offset <= self.model.start
        assert self.log.durable_offset == end_offset
        self.take_off(end_offset)
        self.model.start = self.log.start_offset

    @invariant()
    def offsets_are_ordered(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert log.start_offset <= log.durable_offset <= log.end_offset
            assert log.end_offset == len(self.model.records)

    @invariant()
    def epochs_end_where_the_model_says(self) -> None:
        epochs = self.epochs[self.model.start :]
        for epoch in set(epochs):
            end = self.model.start + sum(1 for other in epochs if other <= epoch)
            assert self.log.end_offset_for_epoch(epoch) == (epoch, end)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
