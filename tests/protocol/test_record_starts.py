"""Where records begin: runs of one size, sizes that differ, and wrong lengths."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace_protocol.records import starts as starts_module
from millrace_protocol.records.fields import Malformed
from millrace_protocol.records.starts import (
    ALIKE_FIRST,
    PAUSE_FIRST,
    RUN_MIN,
    Misplaced,
    RecordStarts,
)
from millrace_protocol.records.varint import varint

# Lengths of one, two and three bytes; and runs that are too short, long enough, and longer than
# the records for which looking is given up.
SIZES = st.sampled_from((1, 2, 63, 64, 100, 8191, 8192))
RUN_LENGTHS = st.sampled_from((1, 2, RUN_MIN - 1, RUN_MIN, RUN_MIN + 1, 3 * PAUSE_FIRST))


def record(size: int) -> bytes:
    """A length, and as many bytes that are like any length's."""
    return varint(size) + (varint(size) * size)[:size]


@given(st.lists(st.lists(st.tuples(SIZES, RUN_LENGTHS), max_size=6), max_size=4))
def test_every_record_of_every_batch_is_found(batches: list[list[tuple[int, int]]]) -> None:
    records = [[record(size) for size, count in runs for _ in range(count)] for runs in batches]
    flat = b"between".join([b"", *map(b"".join, records), b""])
    starts = RecordStarts(flat)
    due: list[int] = []
    position = 0
    for batch in records:
        position += len(b"between")
        first = position
        for each in batch:
            due.append(position)
            position += len(each)
        starts.follow(first, position, len(batch))
    assert starts.positions().tolist() == due


@pytest.mark.parametrize("count", [1, RUN_MIN, 10 * RUN_MIN])
@pytest.mark.parametrize("claimed", [-1, 1, 1 << 30])
def test_records_that_do_not_fill_their_batch_are_refused(count: int, claimed: int) -> None:
    batch = record(100) * count
    for flat in (batch, batch + record(63) * 3):
        with pytest.raises((Malformed, IndexError)):
            RecordStarts(flat).follow(0, len(batch), count + claimed)


@pytest.mark.parametrize("row", [0, 1, 50, 98, 99])
@pytest.mark.parametrize("size", [0, 1, 99, 101, 8192])
def test_one_length_that_lies_in_a_run_is_seen(row: int, size: int) -> None:
    records = [record(100)] * 100
    records[row] = varint(size) + records[row][2:]
    flat = b"".join(records)
    with pytest.raises((Malformed, IndexError)):
        RecordStarts(flat).follow(0, 100 * len(record(100)), 100)


BATCHES = st.lists(st.tuples(SIZES, st.sampled_from((1, 8, 9))), min_size=2, max_size=6).map(
    # Long enough to be compared, and of one size in whatever order they stand.
    lambda runs: [record(size) for size, count in runs for _ in range(count)] + [record(5)] * 16
)


@given(
    BATCHES,
    st.lists(st.sampled_from(("same", "reversed", "shorter", "lying")), max_size=30),
    st.sampled_from((1, 4, ALIKE_FIRST)),
)
@example([record(63)] * 9 + [record(5)] * 16, ["same", "same", "lying"], 1)
@example([record(63)] * 9 + [record(5)] * 16, ["same", "same", "reversed"], 1)
@example([record(63)] * 9 + [record(5)] * 16, ["same"] * 7 + ["reversed"] * 3, 4)
def test_batches_that_are_alike_are_read_like_any_others(
    records: list[bytes], kinds: list[str], at_once: int
) -> None:
    flat = bytearray(b"before")
    extents: list[tuple[int, int]] = []
    counts: list[int] = []
    due: list[int] = []
    first_lie = None
    for kind in ["same", *kinds]:
        batch = {"reversed": records[::-1], "shorter": records[1:]}.get(kind, records)
        start = len(flat)
        for each in batch:
            due.append(len(flat))
            flat += each
        if kind == "lying":
            first_lie = len(extents) if first_lie is None else first_lie
            flat[due[-1]] = 0
        extents.append((start, len(flat)))
        counts.append(len(batch))
    # So that a few batches are more than one look.
    with mock.patch.multiple(starts_module, ALIKE_FIRST=at_once, ALIKE_MIN=min(at_once, 2)):
        starts = RecordStarts(flat)
        if first_lie is None:
            starts.follow_batches(extents, counts)
            assert starts.positions().tolist() == due
        else:
            with pytest.raises(Misplaced) as misplaced:
                starts.follow_batches(extents, counts)
            assert misplaced.value.index == first_lie
