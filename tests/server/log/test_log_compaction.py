"""What compaction leaves of a log, and what it lets alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.records import (
    Codec,
    Record,
    batch_positions,
    encode_batch,
    encode_records,
    read_header,
    seal,
)
from millrace_server.log import CorruptLog, LogConfig, PartitionLog
from millrace_server.log.compaction import cleaned_segment
from millrace_server.log.compaction.key_map import KeyMap
from millrace_server.log.inventory import Inventory, SegmentName
from millrace_simulation.disk import FaultyDisk
from tests.server.log.keyed_log import (
    Pair,
    append_pairs,
    carry_out,
    clean,
    final_map,
    read_batches,
    read_records,
)
from tests.server.log.log_model import DIRECTORY

NOW_MS = 10_000


def compacted(**fields: Any) -> LogConfig:
    """A log whose segments take one batch each, unless told otherwise."""
    settings: dict[str, Any] = {
        "segment_bytes": 1,
        "index_interval_bytes": 0,
        "deletes": False,
        "compacts": True,
        "delete_retention_ms": 100,
    }
    return LogConfig(**settings | fields)


def log_of(disk: FaultyDisk, *batches: Sequence[Pair], **fields: Any) -> PartitionLog:
    """A log of durable batches; what is cleaned of it ends before the last."""
    log = PartitionLog.create(disk, DIRECTORY, compacted(**fields))
    for pairs in batches:
        append_pairs(log, pairs)
    log.flush(checkpoint=True)
    return log


def pairs_of(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(offset, key, value) for offset, _, key, value, _ in read_records(log)]


def names(*segments: tuple[int, int]) -> list[str]:
    """The files of segments, by base offset and generation."""
    return [
        f"{base:020d}{f'.{generation}' if generation else ''}{suffix}"
        for base, generation in segments
        for suffix in (".log", ".index", ".timeindex")
    ]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 31, b"c" * 32, b"c" * 33]),
                st.none() | st.binary(max_size=5),
                st.integers(0, 5_000),
            ),
            min_size=1,
            max_size=6,
        ),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from([1, 300, 10**6]),
    st.sampled_from(Codec),
)
def test_the_last_record_of_each_key_stays_where_it_was(
    batches: list[list[tuple[bytes | None, bytes | None, int]]], segment_bytes: int, codec: Codec
) -> None:
    log = PartitionLog.create(FaultyDisk(), DIRECTORY, compacted(segment_bytes=segment_bytes))
    records: list[Record] = []
    for rows in batches:
        append_pairs(
            log,
            [(key, value) for key, value, _ in rows],
            timestamps_ms=[time for _, _, time in rows],
            codec=codec,
        )
        records += [
            (len(records) + index, time, key, value, ())
            for index, (key, value, time) in enumerate(rows)
        ]
    log.flush(checkpoint=True)
    clean_end = log._chain.active.base_offset
    assert (clean(log, NOW_MS) is None) == (clean_end == 0)
    last = {key: offset for offset, _, key, _, _ in records if offset < clean_end}
    expected = [
        record
        for record in records
        if record[0] >= clean_end or (record[2] is not None and last[record[2]] == record[0])
    ]
    assert read_records(log) == expected
    keyed = [record for record in records if record[2] is not None]
    assert final_map(record for record in expected if record[2] is not None) == final_map(keyed)
    assert clean(log, NOW_MS) is None, "nothing is dirty any more"


def test_a_segment_of_which_nothing_survives_says_where_it_ends() -> None:
    disk = FaultyDisk()
    log = log_of(disk, [(b"k", b"1"), (b"k", b"2")], [(b"k", b"3")], [(b"k", b"4")], [(b"x", b"5")])
    assert clean(log, NOW_MS) is not None
    assert pairs_of(log) == [(3, b"k", b"4"), (4, b"x", b"5")]
    headers = [
        (header.base_offset, header.last_offset, header.record_count)
        for header in (read_header(batch) for batch in split(read_batches(log)))
    ]
    assert headers == [(0, 1, 0), (2, 2, 0), (3, 3, 1), (4, 4, 1)]
    log.close()
    for lost in ((), (f"{DIRECTORY}/checkpoint", f"{DIRECTORY}/recovery-point")):
        for path in lost:
            disk.remove(path)
        again = PartitionLog.open(disk, DIRECTORY, log.config, now_ms=0, verify=True)
        assert pairs_of(again) == [(3, b"k", b"4"), (4, b"x", b"5")]
        for offset in range(3):
            assert read_records(again, offset, max_bytes=1) == read_records(again)
        again.close()


def split(data: bytes) -> list[bytes]:
    """The batches of a fetch."""
    places = [*batch_positions(data), len(data)]
    return [data[place:end] for place, end in pairwise(places)]


def test_a_log_that_lost_all_but_what_was_cleaned_goes_on_behind_it() -> None:
    disk = FaultyDisk()
    log = log_of(disk, [(b"k", b"1")], [(b"k", b"2")], [(b"x", b"3")])
    assert clean(log, NOW_MS) is not None
    log.close()
    for path in ("checkpoint", "recovery-point", f"{2:020d}.log"):
        disk.remove(f"{DIRECTORY}/{path}")
    again = PartitionLog.open(disk, DIRECTORY, log.config, now_ms=0)
    assert pairs_of(again) == [(1, b"k", b"2")]
    assert append_pairs(again, [(b"k", b"3")]).base_offset == 2
    again.close()
    assert disk.open_files == []
    once_more = PartitionLog.open(disk, DIRECTORY, log.config, now_ms=0, verify=True)
    assert once_more.recovery.has_checkpoint
    assert pairs_of(once_more) == [(1, b"k", b"2"), (2, b"k", b"3")]


def test_small_segments_become_one() -> None:
    disk = FaultyDisk()
    log = log_of(disk, *([(b"%d" % i, b"v")] for i in range(10)))
    assert log.segment_count == 10
    log.config = compacted(segment_bytes=300)
    sizes = [segment.size_bytes for segment in log._chain.segments]
    report = clean(log, NOW_MS)
    assert report is not None
    assert (report.bytes_before, report.bytes_after) == (sum(sizes[:-1]), sum(sizes[:-1]))
    assert log.segment_count == 4
    assert max(segment.size_bytes for segment in log._chain.segments) <= 300
    assert len(pairs_of(log)) == 10
    logs = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
    assert logs == names((0, 1), (4, 1), (8, 0), (9, 0))[::3]


def test_what_is_clean_already_is_not_written_again() -> None:
    disk = FaultyDisk()
    log = log_of(disk, [(b"a", b"1")], [(b"b", b"1")], [(b"b", b"2")], [(b"c", b"1")])
    assert clean(log, NOW_MS) is not None
    before = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
    assert before == names((0, 0), (1, 1), (2, 0), (3, 0))[::3]
    append_pairs(log, [(b"d", b"1")])
    append_pairs(log, [(b"e", b"1")])
    log.flush(checkpoint=True)
    log.config = compacted(min_cleanable_dirty_ratio=0)
    assert clean(log, NOW_MS) is not None
    after = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
    assert after[:4] == before


def test_neither_the_active_segment_nor_what_is_not_settled_is_cleaned() -> None:
    same = [(b"k", b"v")]
    log = log_of(FaultyDisk(), same, same, same, same, min_cleanable_dirty_ratio=0)
    append_pairs(log, same)
    append_pairs(log, same)
    assert clean(log, NOW_MS, high_watermark=2, flush=False) is not None
    assert [offset for offset, *_ in pairs_of(log)] == [1, 2, 3, 4, 5]
    assert clean(log, NOW_MS, flush=False) is not None
    assert [offset for offset, *_ in pairs_of(log)] == [2, 3, 4, 5], "the rest is not durable"
    log.flush(checkpoint=True)
    assert clean(log, NOW_MS) is not None
    assert [offset for offset, *_ in pairs_of(log)] == [4, 5]


def test_a_tombstone_stays_from_its_first_cleaning_until_its_horizon() -> None:
    log = log_of(FaultyDisk(), [(b"k", b"1")], [(b"k", None), (b"other", b"1")], [(b"x", b"1")])
    assert clean(log, NOW_MS) is not None
    assert pairs_of(log)[:2] == [(1, b"k", None), (2, b"other", b"1")]
    horizons = [read_header(batch).delete_horizon_ms for batch in split(read_batches(log))]
    assert horizons == [None, NOW_MS + 100, None]
    assert [record[1] for record in read_records(log)] == [1000, 1000, 1000]
    assert clean(log, NOW_MS + 99) is None
    log.close()
    again = PartitionLog.open(log._state.disk, DIRECTORY, log.config, now_ms=0)
    report = clean(again, NOW_MS + 100)
    assert report is not None
    assert report.records_dropped == 1
    assert pairs_of(again) == [(2, b"other", b"1"), (3, b"x", b"1")]
    assert clean(again, NOW_MS + 500) is None, "there is no tombstone any more"
    assert not any(read_header(batch).delete_horizon_ms for batch in split(read_batches(again)))


def test_a_full_key_map_goes_on_where_it_ended() -> None:
    batches: list[list[Pair]] = [[(b"%d" % (i % 6), b"%d" % i)] for i in range(30)]
    log = log_of(FaultyDisk(), *batches, [(b"x", b"")])
    expected = final_map(read_records(log))
    ends = []
    while (report := clean(log, NOW_MS, keys_max=4)) is not None:
        assert report.keys <= 4
        ends.append(log._state.cleanliness.end_offset)
        assert final_map(read_records(log)) == expected
        log.config = compacted(min_cleanable_dirty_ratio=0)
    assert ends[:2] == [4, 8]
    assert ends[-1] == 30
    assert [offset for offset, *_ in pairs_of(log)] == [*range(24, 31)]


def test_keys_that_a_digest_stands_for_are_not_mixed_up_with_it() -> None:
    long = b"k" * 100
    keys = KeyMap(start_offset=0, keys_max=10)
    assert keys.add([long, hashlib.sha256(long).digest(), b"k" * 31], range(3), next_offset=3)
    assert len(keys) == 3
    assert keys.survivors([long, hashlib.sha256(long).digest(), b"k" * 31], range(3)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("fields", "is_due"),
    [
        ({"min_cleanable_dirty_ratio": 0.4}, True),
        ({"min_cleanable_dirty_ratio": 0.6}, False),
        ({"min_cleanable_dirty_ratio": 0.6, "max_compaction_lag_ms": 8_999}, True),
        ({"min_cleanable_dirty_ratio": 0.6, "max_compaction_lag_ms": 9_000}, False),
        ({"min_cleanable_dirty_ratio": 0.4, "min_compaction_lag_ms": 9_000}, True),
        ({"min_cleanable_dirty_ratio": 0.4, "min_compaction_lag_ms": 9_001}, False),
    ],
)
def test_a_pass_is_due_by_the_share_of_what_is_dirty_and_its_age(
    fields: dict[str, Any], is_due: bool
) -> None:
    one_by_one: list[list[Pair]] = [[(b"%d" % i, b"v")] for i in range(5)]
    log = log_of(FaultyDisk(), *one_by_one)
    assert clean(log, NOW_MS) is not None
    for i in range(4):
        append_pairs(log, [(b"%d" % i, b"v")])
    log.flush(checkpoint=True)
    log.close()
    # Of eight closed segments that are equally large, four are dirty and 9,000 ms old.
    again = PartitionLog.open(log._state.disk, DIRECTORY, compacted(**fields), now_ms=0)
    assert (clean(again, NOW_MS) is not None) == is_due


def test_a_segment_is_closed_when_its_records_must_be_cleaned() -> None:
    log = log_of(FaultyDisk(), [(b"k", b"1")], segment_bytes=10**6, max_compaction_lag_ms=500)
    log.retention(1500, high_watermark=1)
    assert log.segment_count == 1
    log.retention(1501, high_watermark=1)
    assert log.segment_count == 2
    append_pairs(log, [(b"k", b"2")], timestamps_ms=1501)
    append_pairs(log, [(b"k", b"3")], timestamps_ms=2002)
    assert log.segment_count == 3
    log.flush()
    assert clean(log, 2002) is not None
    assert [offset for offset, *_ in pairs_of(log)] == [1, 2]


def test_retention_only_goes_on_where_it_is_asked_for() -> None:
    same = [(b"k", b"v")]
    log = log_of(FaultyDisk(), same, same, same, retention_ms=5)
    assert log.retention(NOW_MS, high_watermark=3) == []
    log.config = compacted(retention_ms=5, deletes=True)
    assert clean(log, 1000) is not None
    log.retention(NOW_MS, high_watermark=3)
    log.flush()
    log.retention(NOW_MS, high_watermark=3)
    assert (log.start_offset, log.end_offset) == (3, 3)


def test_retention_that_comes_first_ends_the_pass() -> None:
    same = [(b"k", b"v")]
    log = log_of(FaultyDisk(), same, same, same, same, deletes=True, retention_ms=5)
    cleaning = log.cleaner.begin(1000, high_watermark=4, keys_max=10)
    assert cleaning is not None
    swap = cleaning.step()
    assert swap is not None
    assert not isinstance(swap, int)
    assert log.retention(NOW_MS, high_watermark=4)
    assert not log.cleaner.swap(swap)
    swap.discard()
    cleaning.close()
    log.flush()
    found = Inventory(log._state.disk.list_directory(DIRECTORY))
    assert {segment.generation for segment in found.segments} == {0}
    assert found.scraps == []


def test_markers_are_kept_whatever_their_keys() -> None:
    log = log_of(FaultyDisk(), [(b"k", b"1")])
    for _ in range(3):
        marker = encode_records(
            [(0, 1000, b"k", b"", ())], base_offset=0, last_offset=0, attributes=0x20
        )
        log.append(marker, read_header(marker), now_ms=1000)
    append_pairs(log, [(b"x", b"1")])
    log.flush(checkpoint=True)
    before = read_batches(log)
    assert clean(log, NOW_MS) is not None
    assert read_batches(log) == before


def test_a_batch_that_cannot_be_read_is_kept() -> None:
    log = log_of(FaultyDisk(), [(b"k", b"1")])
    lie = encode_batch([b"value"], keys=[b"k"], timestamps_ms=1000)
    lie[-1] = 100
    seal(lie)
    log.append(lie, read_header(lie), now_ms=1000)
    append_pairs(log, [(b"k", b"2")])
    append_pairs(log, [(b"x", b"1")])
    log.flush(checkpoint=True)
    assert clean(log, NOW_MS) is not None
    batches = split(read_batches(log))
    assert [read_header(batch).record_count for batch in batches] == [0, 1, 1, 1]
    assert batches[1][16:] == bytes(lie[16:])


def test_corrupt_records_are_not_cleaned() -> None:
    disk = FaultyDisk()
    same = [(b"k", b"v")]
    log = log_of(disk, same, same, same)
    disk.flip_bit(f"{DIRECTORY}/{1:020d}.log", 65, 3)
    before = {path: disk.file_bytes(path) for path in disk._cached if path.endswith(".log")}
    cleaning = log.cleaner.begin(NOW_MS, high_watermark=3, keys_max=10)
    assert cleaning is not None
    with pytest.raises(CorruptLog, match="CRC"):
        carry_out(log, cleaning)
    assert {path: disk.file_bytes(path) for path in disk._cached if path.endswith(".log")} == before
    assert [name for name in disk.list_directory(DIRECTORY) if "cleaned" in name] == []


def test_a_reader_in_the_middle_of_a_segment_keeps_it() -> None:
    same = [(b"k", b"v")]
    log = log_of(FaultyDisk(), same, same, same)
    before = read_batches(log)
    reads = [log.reader.read(offset, max_bytes=10**6, end_offset=3) for offset in range(3)]
    assert clean(log, NOW_MS) is not None
    found = b""
    for read in reads:
        assert read.slice is not None
        found += read.slice.file.pread(read.slice.size, read.slice.position)
        read.slice.release()
    assert found == before
    assert len(read_records(log)) == 2


def test_what_does_not_fit_into_one_segment_becomes_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned_segment, "SEGMENT_BYTES_MAX", 200)
    disk = FaultyDisk()
    batches: list[list[Pair]] = [[(b"%d" % i, None)] for i in range(6)]
    log = log_of(disk, *batches, [(b"x", b"")], segment_bytes=10**6)
    log.config = compacted(segment_bytes=1)
    append_pairs(log, [(b"y", b"")])
    log.flush(checkpoint=True)
    before = pairs_of(log)
    assert log.segment_count == 2
    assert clean(log, NOW_MS) is not None
    assert [segment.base_offset for segment in log._chain.segments] == [0, 2, 4, 6, 7]
    assert pairs_of(log) == before
    log.close()
    for lost in ((), (f"{DIRECTORY}/checkpoint", f"{DIRECTORY}/recovery-point")):
        for path in lost:
            disk.remove(path)
        log = PartitionLog.open(disk, DIRECTORY, log.config, now_ms=0, verify=True)
        assert pairs_of(log) == before
        log.close()


@pytest.mark.parametrize(
    ("found", "removed", "later"),
    [
        ([(0, 1), (5, 1), (9, 0)], [], []),
        ([(0, 0), (0, 1), (3, 0), (5, 1), (9, 0)], [(0, 0), (3, 0)], []),
        ([(0, 1), (0, 2), (5, 1), (9, 0)], [(0, 2)], []),
        ([(0, 1), (4, 2), (5, 1), (9, 0), (12, 0)], [(4, 2)], [(12, 0)]),
    ],
)
def test_what_the_checkpoint_does_not_name_is_left_over(
    found: list[tuple[int, int]], removed: list[tuple[int, int]], later: list[tuple[int, int]]
) -> None:
    named = [SegmentName(0, 1), SegmentName(5, 1), SegmentName(9)]
    assert Inventory(names(*found)).beside(named) == (removed, later)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([(0, 1), (9, 0)], "not all of them are there"),
        ([(0, 0), (5, 0), (9, 0)], "not all of them are there"),
        ([(0, 1), (5, 0), (7, 0), (9, 0)], "another one, from offset 7 on, is between them"),
        ([(0, 1), (5, 0), (9, 0), (11, 1)], "one from offset 11 on is cleaned"),
    ],
)
def test_what_compaction_never_leaves_is_refused(
    found: list[tuple[int, int]], sentence: str
) -> None:
    named = [SegmentName(0, 1), SegmentName(5), SegmentName(9)]
    refused = Inventory(names(*found)).beside(named)
    assert isinstance(refused, str)
    assert sentence in refused


def test_files_of_no_segment_are_scraps_and_others_are_left_alone() -> None:
    scraps = [f"{0:020d}.1.cleaned", f"{0:020d}.1.index", f"{7:020d}.timeindex"]
    others = [
        "checkpoint",
        "recovery-point",
        "partition.json",
        "0.log",
        f"{0:020d}.01.log",
        "x.index",
    ]
    inventory = Inventory([*scraps, *others, *names((0, 0))])
    assert inventory.scraps == scraps
    assert inventory.segments == [(0, 0)]
