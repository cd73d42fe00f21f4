"""The plan of a trim: the first offset that each partition keeps."""

from __future__ import annotations

import pytest

from millrace.records import TopicPartition
from millrace_cli.exits import CommandError
from millrace_cli.topic_trim import LogRange, Trim, TrimTarget, plan_trim

FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def kept(target: TrimTarget, *logs: LogRange) -> list[int]:
    """The first offset that is left in each partition."""
    found = plan_trim(target, {TopicPartition("clicks", n): log for n, log in enumerate(logs)})
    assert [each.before for each in found] == [log.start for log in logs]
    return [each.after for each in found]


def test_an_offset_is_kept_and_what_is_before_it_goes() -> None:
    assert kept(TrimTarget(offset=7), LogRange(0, 10), LogRange(7, 7)) == [7, 7]


def test_a_partition_that_begins_later_stays_as_it_is() -> None:
    assert kept(TrimTarget(offset=7), LogRange(8, 10)) == [8]
    assert kept(TrimTarget(time_ms=1), LogRange(8, 10, at_time=5)) == [8]


def test_an_offset_beyond_one_partition_trims_none() -> None:
    with pytest.raises(CommandError, match="clicks-1 has offsets from 0 to 6; 7 is not among them"):
        plan_trim(TrimTarget(offset=7), {FIRST: LogRange(0, 10), SECOND: LogRange(0, 6)})


def test_the_end_and_a_time_after_all_records_leave_none() -> None:
    assert kept(TrimTarget(is_end=True), LogRange(3, 10)) == [10]
    assert kept(TrimTarget(time_ms=9_000), LogRange(3, 10)) == [10]
    assert kept(TrimTarget(time_ms=9_000), LogRange(3, 10, at_time=4)) == [4]


def test_offsets_are_counted() -> None:
    assert Trim(FIRST, 3, 10).offsets == 7
