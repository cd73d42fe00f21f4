"""Bounds become ranges and ranges become tasks: the arithmetic, without a broker."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.records import TopicPartition
from millrace_spark.errors import DataLost, OptionError
from millrace_spark.options.bounds import AtOffsets, AtTime, AtTimes, Bound, Edge
from millrace_spark.options.read_options import ReadOptions
from millrace_spark.options.selection import Subscribe
from millrace_spark.reading.pieces import Piece, at_least, at_most, joined, split, target_bytes
from millrace_spark.reading.ranges import LogExtent, OffsetRange, plan_ranges

CLICKS_0 = TopicPartition("clicks", 0)


def options(**given: object) -> ReadOptions:
    """The options of a read of `clicks`."""
    return ReadOptions(servers="a:1", selection=Subscribe(("clicks",)), **given)  # type: ignore[arg-type]


def ranges_of(
    extent: LogExtent,
    *,
    start: Bound = Edge.EARLIEST,
    end: Bound = Edge.LATEST,
    fail_on_data_loss: bool = True,
    start_must_match: bool = False,
) -> list[tuple[int, int]]:
    """`(start_offset, end_offset)` of the plan for one partition."""
    read = options(
        start=start,
        end=end,
        fail_on_data_loss=fail_on_data_loss,
        start_must_match=start_must_match,
    )
    ranges = plan_ranges({CLICKS_0: extent}, read)
    return [(found.start_offset, found.end_offset) for found in ranges]


def at(offset: int) -> AtOffsets:
    """A bound at an offset of partition 0."""
    return AtOffsets({"clicks": {0: offset}})


def whole(start_offset: int, end_offset: int) -> OffsetRange:
    """A range of partition 0."""
    return OffsetRange("clicks", "id", 0, start_offset, end_offset)


def test_a_read_covers_the_whole_log() -> None:
    assert ranges_of(LogExtent("id", 3, 10)) == [(3, 10)]
    assert ranges_of(LogExtent("id", 10, 10)) == []
    assert ranges_of(LogExtent("id", 3, 10), start=Edge.LATEST) == []


def test_offsets_minus_2_and_minus_1_are_the_edges_same_as_kafka() -> None:
    assert ranges_of(LogExtent("id", 3, 10), start=at(-2), end=at(-1)) == [(3, 10)]
    assert ranges_of(LogExtent("id", 3, 10), start=at(-1)) == []


@pytest.mark.parametrize("others", [AtOffsets({"clicks": {1: 5}}), AtTimes({"clicks": {1: 5}})])
def test_a_partition_that_a_bound_does_not_name_is_read_to_its_edges(others: Bound) -> None:
    assert ranges_of(LogExtent("id", 3, 10), start=others, end=others) == [(3, 10)]


def test_a_time_later_than_every_record_means_the_end() -> None:
    assert ranges_of(LogExtent("id", 3, 10, start_found=-1), start=AtTime(9)) == []
    assert ranges_of(LogExtent("id", 3, 10, end_found=-1), end=AtTime(9)) == [(3, 10)]


def test_a_start_later_than_every_record_is_an_error_only_by_the_strategy_error() -> None:
    times = AtTimes({"clicks": {0: 9}})
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp: no record of clicks-0"):
        ranges_of(LogExtent("id", 3, 10, start_found=-1), start=times, start_must_match=True)
    found = LogExtent("id", 3, 10, start_found=7)
    assert ranges_of(found, start=times, start_must_match=True) == [(7, 10)]


def test_a_record_written_while_planning_is_not_read() -> None:
    assert ranges_of(LogExtent("id", 3, 10, end_found=11), end=AtTime(9)) == [(3, 10)]


@pytest.mark.parametrize(
    ("start", "end", "gone", "skipped"),
    [
        (at(0), Edge.LATEST, r"records \[0, 3\) are gone.*retention", [(3, 10)]),
        (at(0), at(2), r"records \[0, 2\) are gone.*retention", []),
        (at(12), Edge.LATEST, r"records \[10, 12\) do not exist", []),
        (at(5), at(12), r"records \[10, 12\) do not exist", [(5, 10)]),
    ],
)
def test_offsets_that_are_not_in_the_log_fail_or_are_skipped_as_fail_on_data_loss_says(
    start: Bound, end: Bound, gone: str, skipped: list[tuple[int, int]]
) -> None:
    extent = LogExtent("id", 3, 10)
    with pytest.raises(DataLost, match=gone):
        ranges_of(extent, start=start, end=end)
    assert ranges_of(extent, start=start, end=end, fail_on_data_loss=False) == skipped


def assert_covers(pieces: list[OffsetRange], covered: OffsetRange) -> None:
    """The pieces are the range, in order, and none is empty."""
    assert pieces[0].start_offset == covered.start_offset
    assert pieces[-1].end_offset == covered.end_offset
    assert all(a.end_offset == b.start_offset for a, b in pairwise(pieces))
    assert all(len(piece) > 0 for piece in pieces)


@given(st.integers(0, 2**40), st.integers(1, 5_000), st.integers(1, 6_000))
def test_pieces_of_at_most_so_many_records_differ_by_one(
    start_offset: int, length: int, records_max: int
) -> None:
    range_ = whole(start_offset, start_offset + length)
    pieces = at_most([range_], records_max)
    assert_covers(pieces, range_)
    lengths = [len(piece) for piece in pieces]
    assert max(lengths) <= records_max
    assert max(lengths) - min(lengths) <= 1


def test_a_split_into_too_many_tasks_is_refused_before_it_is_made() -> None:
    with pytest.raises(OptionError, match="maxRecordsPerPartition: 1 makes more than 100000"):
        at_most([whole(0, 2**40)], 1)
    with pytest.raises(OptionError, match="maxPartitionBytes: 1 makes more than 100000"):
        target_bytes([2**40], options(max_partition_bytes=1))


@example(grains=[(1, 10), (1, 10), (1, 0)], target=10)
@example(grains=[(1, 0), (1, 0)], target=5)
@given(
    grains=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1_000)), min_size=1, max_size=40),
    target=st.integers(1, 5_000),
)
def test_joined_grains_are_pieces_of_equal_bytes_but_for_a_grain(
    grains: list[tuple[int, int]], target: int
) -> None:
    offset, made = 0, []
    for length, size_bytes in grains:
        made.append(Piece(whole(offset, offset + length), size_bytes))
        offset += length
    pieces = joined(made, target)
    assert_covers([piece.wanted for piece in pieces], whole(0, offset))
    total = sum(size for _, size in grains)
    assert sum(piece.size_bytes for piece in pieces) == total
    count = max(1, -(-total // target))
    assert len(pieces) <= count
    grain_max = max(size for _, size in grains)
    assert max(piece.size_bytes for piece in pieces) <= total / count + grain_max


@given(st.lists(st.integers(1, 30), max_size=10), st.integers(1, 400))
def test_at_least_so_many_pieces_unless_there_are_fewer_records(
    lengths: list[int], count_min: int
) -> None:
    pieces = [Piece(whole(0, length), length * 100) for length in lengths]
    found = at_least(pieces, count_min)
    assert len(found) == max(len(pieces), min(count_min, sum(lengths)))
    assert sum(len(piece) for piece in found) == sum(lengths)


def test_the_largest_pieces_are_cut_again() -> None:
    pieces = [Piece(whole(0, 100), 10), Piece(whole(100, 200), 1_000), Piece(whole(200, 300), 400)]
    found = at_least(pieces, 5)
    assert [(piece.start_offset, piece.end_offset) for piece in found] == [
        (0, 100),
        (100, 133),
        (133, 166),
        (166, 200),
        (200, 300),
    ]


def test_a_split_keeps_partition_and_incarnation() -> None:
    assert list(split(whole(5, 8), 3)) == [whole(5, 6), whole(6, 7), whole(7, 8)]
