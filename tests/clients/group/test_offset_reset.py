"""Where a reset leads, for any goal and any partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace._group.offset_reset import Move, NoSuchOffset, PartitionOffsets, Target, plan
from millrace.records import TopicPartition

FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


@pytest.mark.parametrize(
    ("goal", "to"),
    [
        (Target(end="earliest"), 10),
        (Target(end="latest"), 90),
        (Target(offset=10), 10),
        (Target(offset=90), 90),
        (Target(time_ms=5), 33),
        (Target(shift=0), 50),
        (Target(shift=-7), 43),
        (Target(shift=7), 57),
        (Target(shift=-50), 10),
        (Target(shift=41), 90),
    ],
)
def test_a_goal_leads_to_an_offset_that_the_partition_has(goal: Target, to: int) -> None:
    known = {FIRST: PartitionOffsets(committed=50, start=10, end=90, at_time=33)}
    assert plan(goal, known) == [Move(FIRST, 50, to)]


def test_a_time_that_no_record_is_as_late_as_leads_to_the_end() -> None:
    known = {FIRST: PartitionOffsets(committed=None, start=0, end=9, at_time=None)}
    assert plan(Target(time_ms=5), known) == [Move(FIRST, None, 9)]


@pytest.mark.parametrize(
    ("goal", "sentence"),
    [
        (Target(offset=9), "clicks-1 has offsets from 10 to 90; 9 is not among them"),
        (Target(offset=91), "clicks-1 has offsets from 10 to 90; 91 is not among them"),
        (Target(shift=1), "no committed offset for clicks-1"),
    ],
)
def test_one_partition_that_cannot_be_moved_keeps_all_where_they_are(
    goal: Target, sentence: str
) -> None:
    known = {
        FIRST: PartitionOffsets(committed=50, start=0, end=100),
        SECOND: PartitionOffsets(committed=None, start=10, end=90),
    }
    with pytest.raises(NoSuchOffset, match=sentence):
        plan(goal, known)


@given(
    committed=st.integers(0, 2**62),
    start=st.integers(0, 2**62),
    size=st.integers(0, 2**62),
    shift=st.integers(-(2**62), 2**62),
)
def test_a_shift_never_leaves_the_partition(
    committed: int, start: int, size: int, shift: int
) -> None:
    (move,) = plan(Target(shift=shift), {FIRST: PartitionOffsets(committed, start, start + size)})
    assert start <= move.to <= start + size
    assert move.to in (committed + shift, start, start + size)
