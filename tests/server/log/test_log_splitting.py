"""Ranges of a log in pieces of about equal bytes, against the batches that are there (W-4.23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millrace_protocol.records import batch_positions, read_header
from millrace_server.log import LogClosed, LogConfig, OffsetOutOfRange, PartitionLog, Piece
from millrace_simulation.disk import FaultyDisk
from tests.server.log.keyed_log import append_pairs, clean, read_batches
from tests.server.log.log_model import DIRECTORY, append

INTERVAL_BYTES = 300
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=INTERVAL_BYTES, preallocate=False)
ONE_SEGMENT = replace(CONFIG, segment_bytes=1 << 20)

Batch = tuple[int, int, int]
"""Base offset, last offset, bytes."""


def filled(disk: FaultyDisk, sizes: Sequence[int], config: LogConfig = CONFIG) -> PartitionLog:
    """A log of batches of two records, with values of these sizes."""
    log = PartitionLog.create(disk, DIRECTORY, config)
    for size in sizes:
        append(log, [b"", b"x" * size])
    return log


def compacted(keys: Sequence[int]) -> PartitionLog:
    """A cleaned log of batches of two records with a key each."""
    config = replace(CONFIG, deletes=False, compacts=True, min_cleanable_dirty_ratio=0.01)
    log = PartitionLog.create(FaultyDisk(), DIRECTORY, config)
    for first, second in zip(keys[::2], keys[1::2], strict=True):
        append_pairs(log, [(b"%d" % first, b"v" * 100), (b"%d" % second, b"w" * 50)])
    log.flush(checkpoint=True)
    clean(log, 10_000)
    return log


def batches_of(log: PartitionLog) -> list[Batch]:
    data = read_batches(log)
    headers = [read_header(data[position:]) for position in batch_positions(data)]
    return [(h.base_offset, h.last_offset, h.size_bytes) for h in headers]


def split_all(
    log: PartitionLog, start: int, end: int, *, piece_bytes: int, pieces_max: int = 7
) -> list[Piece]:
    """All pieces, however many calls that takes."""
    pieces: list[Piece] = []
    while (reached := pieces[-1].end_offset if pieces else start) < end:
        found = log.reader.split(
            reached, end_offset=end, piece_bytes=piece_bytes, pieces_max=pieces_max
        )
        assert 1 <= len(found) <= pieces_max
        pieces += found
    return pieces


def bytes_between(batches: Sequence[Batch], start: int, end: int) -> int:
    """The bytes of the batches that hold any of these offsets."""
    return sum(size for base, last, size in batches if base < end and last >= start)


def check_pieces(
    pieces: Sequence[Piece], batches: Sequence[Batch], start: int, end: int, *, piece_bytes: int
) -> None:
    """All that is promised of the pieces of a range."""
    ends = [piece.end_offset for piece in pieces]
    starts = [start, *ends[:-1]]
    assert ends == sorted(set(ends)) and ends[0] > start and ends[-1] == end
    across = [(cut, b) for cut in ends[:-1] for b in batches if b[0] < cut <= b[1]]
    assert not across, "no batch lies on both sides of a cut"
    step_bytes = INTERVAL_BYTES + max(size for _, _, size in batches)
    for number, (first, piece) in enumerate(zip(starts, pieces, strict=True)):
        there = bytes_between(batches, first, piece.end_offset)
        slack = (number == 0) + (number == len(pieces) - 1)
        if slack:
            assert there <= piece.size_bytes <= there + slack * step_bytes
        else:
            assert piece.size_bytes == there
        assert piece.size_bytes < piece_bytes + step_bytes
        assert piece.size_bytes >= piece_bytes or number == len(pieces) - 1


SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=40)


@given(SIZES, st.integers(0, 90), st.integers(1, 90), st.integers(1, 5_000), st.booleans())
@settings(deadline=None, max_examples=150)
def test_pieces_cover_a_range_in_steps_of_the_index_before_and_after_a_restart(
    sizes: list[int], start: int, length: int, piece_bytes: int, is_one_segment: bool
) -> None:
    """W-4.23.1"""
    disk, config = FaultyDisk(), ONE_SEGMENT if is_one_segment else CONFIG
    log = filled(disk, sizes, config)
    start = min(start, log.end_offset - 1)
    end = min(start + length, log.end_offset)
    batches = batches_of(log)
    pieces = split_all(log, start, end, piece_bytes=piece_bytes)
    check_pieces(pieces, batches, start, end, piece_bytes=piece_bytes)
    log.close()
    log = PartitionLog.open(disk, DIRECTORY, config, now_ms=1)
    assert split_all(log, start, end, piece_bytes=piece_bytes) == pieces
    log.close()
    assert disk.open_files == []


@given(st.lists(st.integers(0, 9), min_size=20, max_size=80), st.integers(1, 3_000), st.data())
@settings(deadline=None, max_examples=60)
def test_a_compacted_log_is_cut_by_what_is_left_of_it(
    keys: list[int], piece_bytes: int, data: st.DataObject
) -> None:
    """W-4.23.1"""
    log = compacted(keys[: len(keys) // 2 * 2])
    start = data.draw(st.integers(0, log.end_offset - 1))
    end = data.draw(st.integers(start + 1, log.end_offset))
    pieces = split_all(log, start, end, piece_bytes=piece_bytes)
    check_pieces(pieces, batches_of(log), start, end, piece_bytes=piece_bytes)


def test_a_range_of_which_compaction_has_left_nothing_is_one_piece_of_no_bytes() -> None:
    """W-4.23.1"""
    log = compacted([1, 2] * 40)
    first = batches_of(log)[0][0]
    assert first > 2, "compaction has removed something"
    pieces = split_all(log, 0, first, piece_bytes=100)
    assert [piece.end_offset for piece in pieces] == [first]
    assert bytes_between(batches_of(log), 0, first) == 0


@given(SIZES, st.integers(1, 5_000))
@settings(deadline=None, max_examples=60)
def test_the_sizes_of_a_whole_log_add_up_to_its_bytes(sizes: list[int], piece_bytes: int) -> None:
    log = filled(FaultyDisk(), sizes)
    pieces = split_all(log, 0, log.end_offset, piece_bytes=piece_bytes)
    assert sum(piece.size_bytes for piece in pieces) == log.size_bytes


@given(SIZES, st.integers(1, 3_000), st.integers(1, 3), st.integers(4, 50))
@settings(deadline=None, max_examples=60)
def test_the_pieces_are_the_same_in_however_many_calls(
    sizes: list[int], piece_bytes: int, few: int, many: int
) -> None:
    """W-4.23.2: who asks again from where an answer ended goes on as if it had not."""
    log = filled(FaultyDisk(), sizes)
    end = log.end_offset
    one, other = (
        split_all(log, 0, end, piece_bytes=piece_bytes, pieces_max=n) for n in (few, many)
    )
    assert one == other


def test_a_cut_of_old_segments_reads_their_offset_indexes_and_nothing_else() -> None:
    disk = FaultyDisk()
    filled(disk, [100] * 100).close()
    log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
    assert log.segment_count > 5
    read: list[str] = []
    disk.judge_read = lambda path: read.append(path)
    pieces = split_all(log, 1, log.end_offset - 1, piece_bytes=700)
    assert len(pieces) > log.segment_count
    assert read and {path.rpartition(".")[2] for path in read} == {"index"}
    read.clear()
    assert len(split_all(log, 0, log.end_offset, piece_bytes=1 << 40)) == 1
    assert read == [], "a piece that takes in whole segments needs none of their indexes"


def test_an_index_that_is_gone_is_made_again_and_nothing_stays_open() -> None:
    disk = FaultyDisk()
    filled(disk, [100] * 60).close()
    log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
    pieces = split_all(log, 3, log.end_offset, piece_bytes=500)
    open_files = disk.open_files
    log.close()
    for path in [p for p in disk.list_directory(DIRECTORY) if p.endswith(".index")][:3]:
        disk.damage(f"{DIRECTORY}/{path}", 0, b"\xff\xff")
    log = PartitionLog.open(disk, DIRECTORY, CONFIG, now_ms=1)
    assert split_all(log, 3, log.end_offset, piece_bytes=500) == pieces
    assert disk.open_files == open_files


@given(st.integers(-3, 30), st.integers(-3, 30))
@settings(deadline=None, max_examples=60)
def test_a_range_outside_the_log_is_refused_with_what_there_is(start: int, end: int) -> None:
    """W-4.23.3"""
    log = filled(FaultyDisk(), [10] * 10)
    assume(min(start, end) < 0 or max(start, end) > 20)
    with pytest.raises(OffsetOutOfRange, match="from 0 to 20"):
        log.reader.split(start, end_offset=end, piece_bytes=1, pieces_max=1)


def test_an_empty_range_has_no_pieces_and_a_closed_log_no_ranges() -> None:
    log = filled(FaultyDisk(), [10] * 3)
    for offset in (0, 1, 6):
        assert log.reader.split(offset, end_offset=offset, piece_bytes=1, pieces_max=1) == []
    log.close()
    with pytest.raises(LogClosed):
        log.reader.split(0, end_offset=1, piece_bytes=1, pieces_max=1)


def test_what_retention_has_taken_is_out_of_range() -> None:
    """W-4.23.3"""
    log = filled(FaultyDisk(), [100] * 60, replace(CONFIG, retention_bytes=3_000))
    log.flush(checkpoint=True)
    assert log.retention(1_000, high_watermark=log.end_offset)
    with pytest.raises(OffsetOutOfRange):
        log.reader.split(0, end_offset=log.end_offset, piece_bytes=1, pieces_max=1)
    pieces = split_all(log, log.start_offset, log.end_offset, piece_bytes=500)
    assert sum(piece.size_bytes for piece in pieces) == log.size_bytes
