"""A compacted log against a plain list, through any order of appends, cleanings, retention,
crashes and restarts."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from millrace_protocol.records import Codec, Record
from millrace_server.log import LogConfig, PartitionLog
from millrace_simulation.disk import FaultyDisk
from tests.server.log.keyed_log import append_pairs, clean, final_map, read_records
from tests.server.log.log_model import DIRECTORY
from tests.server.log.times import first_at_or_after, newest

KEYS = st.sampled_from([b"a", b"b", b"c", b"d" * 40])
RETENTION_MS = 100
PRODUCER = 5


class CompactionMachine(RuleBasedStateMachine):
    """`records` are all that was appended, `batches` where their batches begin and end."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyDisk()
        self.records: list[Record] = []
        self.batches: list[tuple[int, int]] = []
        self.now_ms = 1000
        self.clean_to = 0
        self.horizons: dict[int, int] = {}
        """Offset of a tombstone to when it may go, from the pass that met it first."""

    @initialize(
        segment_bytes=st.sampled_from([150, 700, 10**6]),
        index_interval_bytes=st.sampled_from([0, 200, 4096]),
        deletes=st.booleans(),
        is_stamped=st.booleans(),
    )
    def create(
        self, segment_bytes: int, index_interval_bytes: int, deletes: bool, is_stamped: bool
    ) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            retention_ms=300,
            deletes=deletes,
            compacts=True,
            min_cleanable_dirty_ratio=0,
            max_compaction_lag_ms=200,
            delete_retention_ms=RETENTION_MS,
            timestamp_type="LogAppendTime" if is_stamped else "CreateTime",
        )
        self.log = PartitionLog.create(self.disk, DIRECTORY, self.config)

    @rule(
        pairs=st.lists(
            st.tuples(KEYS, st.none() | st.binary(max_size=3), st.integers(-50, 0)),
            min_size=1,
            max_size=4,
        ),
        codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
    )
    def append(self, pairs: list[tuple[bytes, bytes | None, int]], codec: Codec) -> None:
        first = len(self.records)
        times = [self.now_ms + delta for _, _, delta in pairs]
        appended = append_pairs(
            self.log,
            [(key, value) for key, value, _ in pairs],
            timestamps_ms=times,
            now_ms=self.now_ms,
            codec=codec,
            producer_id=PRODUCER,
            base_sequence=first,
        )
        assert appended.base_offset == first
        if appended.log_append_time_ms >= 0:
            times = [appended.log_append_time_ms] * len(pairs)
        for (key, value, _), time in zip(pairs, times, strict=True):
            self.records.append((len(self.records), time, key, value, ()))
        self.batches.append((first, self.log.end_offset))

    @rule(ms=st.sampled_from([1, 60, 250]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(checkpoint=st.booleans())
    def flush(self, checkpoint: bool) -> None:
        self.log.flush(checkpoint=checkpoint)

    @rule(keys_max=st.sampled_from([1, 2, 100]), flush=st.booleans())
    def clean(self, keys_max: int, flush: bool) -> None:
        chain = self.log._chain
        resting = (*chain.unsettled, chain.active)[0]  # closed since the last flush, or not at all
        report = clean(
            self.log,
            self.now_ms,
            keys_max=keys_max,
            high_watermark=self.log.durable_offset,
            flush=flush,
        )
        if report is None:
            return
        clean_to = self.log._state.cleanliness.end_offset
        assert self.clean_to <= clean_to <= self.log.durable_offset
        assert report.is_map_full or clean_to == resting.base_offset
        self.clean_to = clean_to
        found = read_records(self.log)
        keys = [key for offset, _, key, _, _ in found if offset < clean_to]
        assert len(keys) == len(set(keys)), "no key is twice where the log is clean"
        for offset, _, _, value, _ in found:
            if value is not None or offset >= clean_to:
                continue
            if any(base <= offset < end <= clean_to for base, end in self.batches):
                horizon = self.horizons.setdefault(offset, self.now_ms + RETENTION_MS)
                assert self.now_ms < horizon, "a tombstone goes when its time has come"

    @rule()
    def retain(self) -> None:
        self.log.retention(self.now_ms, high_watermark=self.log.durable_offset)

    @rule(offset=st.integers(0, 60), max_bytes=st.sampled_from([1, 200, 10**6]))
    def read_from(self, offset: int, max_bytes: int) -> None:
        log = self.log
        offset = max(log.start_offset, min(offset, log.end_offset))
        found = read_records(log, offset, max_bytes=max_bytes)
        assert found == [record for record in read_records(log) if record[0] >= offset]

    @rule(back=st.integers(-50, 300))
    def look_up_time(self, back: int) -> None:
        found = read_records(self.log)
        time = self.now_ms - back
        expected = next(((ts, offset) for offset, ts, *_ in found if ts >= time), None)
        looked_up = first_at_or_after(self.log, time, end_offset=self.log.end_offset)
        assert looked_up == expected
        largest = max((ts for _, ts, *_ in found), default=None)
        expected = next(((ts, offset) for offset, ts, *_ in found if ts == largest), None)
        assert newest(self.log, end_offset=self.log.end_offset) == expected

    @rule()
    def append_the_last_batch_again(self) -> None:
        if self.batches:
            base, end = self.batches[-1]
            pairs = [(key, value) for _, _, key, value, _ in self.records[base:end]]
            repeated = append_pairs(
                self.log, pairs, producer_id=PRODUCER, base_sequence=base, now_ms=self.now_ms
            )
            assert (repeated.base_offset, repeated.duplicate) == (base, True)

    @rule(verify=st.booleans())
    def close_and_open(self, verify: bool) -> None:
        self.log.close()
        assert self.disk.open_files == []
        self.open(verify=verify)
        assert self.log.recovery.is_clean or verify

    @rule(seed=st.none() | st.integers(0, 2**16))
    def crash(self, seed: int | None) -> None:
        if seed is None:
            self.disk = self.disk.after_kill()
        else:
            self.disk = self.disk.after_power_cut(random.Random(seed))
        durable = self.log.durable_offset
        self.open(verify=True)
        assert self.log.end_offset >= durable

    @precondition(lambda self: self.log.start_offset < self.log.end_offset)
    @rule()
    def lose_the_checkpoint(self) -> None:
        """An empty log would forget its producer with it: nothing else tells of one."""
        self.log.flush()
        self.log.discard()
        end_offset = self.log.end_offset
        self.disk = self.disk.after_kill()
        self.disk.damage(f"{DIRECTORY}/checkpoint", 0, b"XXXX")
        self.open(verify=True)
        assert self.log.end_offset == end_offset

    def open(self, *, verify: bool) -> None:
        self.log = PartitionLog.open(
            self.disk, DIRECTORY, self.config, now_ms=self.now_ms, verify=verify
        )
        end_offset = self.log.end_offset
        del self.records[end_offset:]
        self.batches = [(base, end) for base, end in self.batches if end <= end_offset]
        self.clean_to = self.log._state.cleanliness.end_offset
        # What a pass had put into force is as it was before, or not: a horizon may come later.
        self.horizons = {}
        inside = [name for name in self.disk.list_directory(DIRECTORY) if name.endswith("cleaned")]
        assert inside == []

    @invariant()
    def what_is_left_says_the_same(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.end_offset == len(self.records)
        start, found = log.start_offset, read_records(log)
        assert all(record == self.records[record[0]] for record in found)
        offsets = [offset for offset, *_ in found]
        assert offsets == sorted(set(offsets))
        assert final_map(found) == final_map(self.records[start:])
        assert [offset for offset in offsets if offset >= self.clean_to] == list(
            range(max(start, self.clean_to), log.end_offset)
        ) or self._is_swapped_and_not_finished()
        last = {key: offset for offset, _, key, _, _ in self.records[start:]}
        for offset, horizon in self.horizons.items():
            if offset >= start and last[self.records[offset][2]] == offset:
                assert offset in offsets or self.now_ms >= horizon

    def _is_swapped_and_not_finished(self) -> bool:
        """A crash may come between what a pass put into force and its end."""
        return any(segment.generation for segment in self.log._chain.segments)


TestCompactionMachine = CompactionMachine.TestCase
TestCompactionMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
