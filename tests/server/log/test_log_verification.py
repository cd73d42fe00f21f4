"""What comes from the disk is checked before it is given, and what has changed is walked around."""

from __future__ import annotations

import errno
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_protocol.records import HEADER_SIZE, encode_batch
from millrace_protocol.records.validate import assign
from millrace_server.log import CorruptLog
from millrace_server.log.integrity.corrupt_ranges import (
    CORRUPT_RANGES_MAX,
    CorruptRange,
    CorruptRanges,
)
from millrace_server.log.integrity.verification import Boundary, check_batches
from millrace_server.log.integrity.verified import RANGES_MAX, READ_AHEAD_BYTES, Verified

PAGE_BYTES = 65_536


class Bytes:
    """A file in memory; where it is unreadable, it fails as a disk does."""

    path = "t-0/0.log"

    def __init__(self, data: bytes, *, unreadable: range = range(0)) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []
        self._unreadable = unreadable

    def pread(self, size: int, position: int) -> bytes:
        self.reads.append((position, size))
        if position < self._unreadable.stop and position + size > self._unreadable.start:
            raise OSError(errno.EIO, "Input/output error", self.path)
        return self.data[position : position + size]


def run_of(sizes: list[int]) -> tuple[bytes, list[Boundary]]:
    """Batches with values of these sizes, two records each, and where each begins; and the end."""
    data, boundaries = b"", [Boundary(0, 7)]
    rng = random.Random(len(sizes))
    for size in sizes:
        batch = encode_batch([rng.randbytes(size), b""], timestamps_ms=5)
        assign(batch, base_offset=boundaries[-1].offset, leader_epoch=3)
        data += batch
        boundaries.append(Boundary(len(data), boundaries[-1].offset + 2))
    return data, boundaries


@given(
    sizes=st.lists(
        st.one_of(st.integers(0, 300), st.integers(100_000, 600_000)), min_size=1, max_size=12
    ),
    place=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=40)
def test_a_check_ends_with_the_batch_that_holds_the_last_byte_asked_for(
    sizes: list[int], place: int
) -> None:
    data, boundaries = run_of(sizes)
    first = boundaries[place % len(sizes)]
    until = first.position + 1 + place % (len(data) - first.position)
    file = Bytes(data + b"never looked at")
    end = check_batches(file, first, until, end_position=len(data))
    assert end == next(b for b in boundaries if b.position >= until)
    assert all(position + size <= len(data) for position, size in file.reads)


def test_large_batches_are_read_once() -> None:
    data, boundaries = run_of([500_000] * 4)
    file = Bytes(data)
    assert check_batches(file, boundaries[0], len(data), end_position=len(data)) == boundaries[-1]
    assert sum(size for _, size in file.reads) < len(data) + 4 * HEADER_SIZE


DATA, BOUNDARIES = run_of([10, 300, 0, 70, 5_000, 20])


@given(position=st.integers(0, len(DATA) - 1), bit=st.integers(0, 7))
@settings(max_examples=300)
def test_any_changed_bit_is_found_at_the_batch_it_is_in(position: int, bit: int) -> None:
    changed = bytearray(DATA)
    changed[position] ^= 1 << bit
    start = max(b for b in BOUNDARIES if b.position <= position)
    if 12 <= position - start.position < 16:
        # The leader epoch, which no CRC covers, as in Kafka.
        check_batches(Bytes(bytes(changed)), BOUNDARIES[0], len(DATA), end_position=len(DATA))
        return
    with pytest.raises(CorruptLog) as found:
        check_batches(Bytes(bytes(changed)), BOUNDARIES[0], len(DATA), end_position=len(DATA))
    assert Boundary(found.value.position, found.value.offset) == start


def test_where_compaction_left_out_offsets_they_only_have_to_rise() -> None:
    holes = b"".join(
        DATA[BOUNDARIES[i].position : BOUNDARIES[i + 1].position] for i in (0, 2, 3, 5)
    )
    end = check_batches(
        Bytes(holes), BOUNDARIES[0], len(holes), end_position=len(holes), is_dense=False
    )
    assert end == (len(holes), BOUNDARIES[-1].offset)
    behind = Boundary(0, BOUNDARIES[0].offset + 1)
    with pytest.raises(CorruptLog, match="is next"):
        check_batches(Bytes(holes), behind, 1, end_position=len(holes), is_dense=False)


def test_a_file_that_ends_too_early_is_found() -> None:
    for size in range(len(DATA)):
        with pytest.raises(CorruptLog):
            check_batches(Bytes(DATA[:size]), BOUNDARIES[0], len(DATA), end_position=len(DATA))


def test_what_the_disk_cannot_read_counts_as_changed_and_other_errors_do_not() -> None:
    bad = BOUNDARIES[4]
    file = Bytes(DATA, unreadable=range(bad.position + 100, bad.position + 101))
    with pytest.raises(CorruptLog, match="the disk cannot read it") as found:
        check_batches(file, bad, len(DATA), end_position=len(DATA))
    assert (found.value.position, found.value.offset) == bad

    class Closed(Bytes):
        def pread(self, size: int, position: int) -> bytes:
            raise OSError(errno.EBADF, "Bad file descriptor")

    with pytest.raises(OSError, match="Bad file"):
        check_batches(Closed(DATA), BOUNDARIES[0], 1, end_position=len(DATA))


@given(
    start=st.integers(0, 60),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["note", "read", "ahead"]), st.integers(0, 60), st.integers(1, 9)
        ),
        max_size=30,
    ),
)
def test_what_counts_as_checked_was_checked(start: int, steps: list[tuple[str, int, int]]) -> None:
    """Against a set of pages; the account may forget more, and never remembers more."""
    verified = Verified(start * PAGE_BYTES)
    model = set(range(start, 400))
    exact = True
    for step, first, count in steps:
        position, end = first * PAGE_BYTES, (first + count) * PAGE_BYTES
        ahead = READ_AHEAD_BYTES // PAGE_BYTES
        if step == "note":
            verified.note(position, end)
            model |= set(range(first, first + count))
        elif step == "read":
            verified.note_read(position + 5, end - 5, file_end=300 * PAGE_BYTES)
            model -= set(range(first, min(300, first + count + ahead)))
            exact = False
        else:
            verified.note_read_ahead(end, file_end=300 * PAGE_BYTES)
            model -= set(range(first + count, min(300, first + count + ahead)))
    for page in range(80):
        covered = verified.covers(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
        assert covered <= (page in model)
        if exact and len(model) and page in model and len(steps) < RANGES_MAX:
            assert covered
    for first, last in itertools.pairwise(sorted(random.Random(start).sample(range(80), 6))):
        if verified.covers(first * PAGE_BYTES, last * PAGE_BYTES):
            assert set(range(first, last)) <= model


def test_the_account_of_what_was_checked_is_bounded() -> None:
    verified = Verified(10**9)
    for number in range(1000):
        verified.note(number * 100, number * 100 + 10 + number)
    assert len(verified._starts) == len(verified._ends) == RANGES_MAX
    assert verified.covers(2 * 10**9, 3 * 10**9), "what was appended is not forgotten for it"


def corrupt(position: int, end_position: int) -> CorruptRange:
    return CorruptRange("f", position, end_position, position * 10, end_position * 10, "x")


def test_a_corrupt_range_is_found_by_position_and_by_offset() -> None:
    ranges = CorruptRanges()
    assert not ranges
    for found in (corrupt(50, 60), corrupt(10, 20), corrupt(60, 70)):
        ranges.add(found)
    assert [r.position for r in ranges] == [10, 50, 60]
    assert ranges.from_position(0) == ranges.from_position(19) == corrupt(10, 20)
    assert ranges.from_position(20) == corrupt(50, 60)
    assert ranges.from_position(70) is None
    assert ranges.holding(99) is None
    assert ranges.holding(100) == ranges.holding(199) == corrupt(10, 20)
    assert ranges.holding(200) is None
    assert ranges.before(199) is None
    assert ranges.before(200) == ranges.before(550) == corrupt(10, 20)
    assert ranges.before(10**6) == corrupt(60, 70)


def test_corrupt_ranges_that_overlap_are_one() -> None:
    ranges = CorruptRanges()
    for found in (corrupt(20, 30), corrupt(40, 50), corrupt(10, 45)):
        ranges.add(found)
    assert list(ranges) == [corrupt(10, 50)]


def test_a_segment_with_many_corrupt_ranges_keeps_a_bounded_list_that_covers_all() -> None:
    ranges = CorruptRanges()
    places = random.Random(1).sample(range(0, 100_000, 10), 500)
    for place in places:
        known = ranges.from_position(place)
        if known is None or known.position > place:
            ranges.add(corrupt(place, place + 3))
    assert len(ranges) == CORRUPT_RANGES_MAX
    for place in places:
        covering = ranges.from_position(place)
        assert covering is not None
        assert covering.position <= place < place + 3 <= covering.end_position
        assert ranges.holding(place * 10) == covering
