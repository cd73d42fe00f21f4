"""Conditions restrict ranges and lose no record."""

from __future__ import annotations

import operator as operators
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.records import TopicPartition
from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.options.read_options import ReadOptions, parse_read_options
from millrace_spark.reading.filter_pushdown import (
    Condition,
    Operator,
    earliest_ms,
    restrict,
    selects,
)
from millrace_spark.reading.planner import plan
from millrace_spark.reading.ranges import OffsetRange

COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
NUMBERS = st.integers(-3, 30)
CONDITIONS = st.one_of(
    st.builds(
        Condition, st.just("offset"), st.sampled_from([*COMPARED]), NUMBERS.map(lambda n: (n,))
    ),
    st.builds(
        Condition,
        st.just("offset"),
        st.just("in"),
        st.lists(NUMBERS, min_size=1, max_size=4).map(tuple),
    ),
)


def is_met(condition: Condition, number: int) -> bool:
    """Whether a number fulfils a condition, as SQL has it."""
    if condition.operator == "in":
        return number in condition.values
    return COMPARED[condition.operator](number, condition.values[0])


@given(st.lists(CONDITIONS, max_size=4), st.integers(0, 10), st.integers(1, 15))
def test_narrowed_ranges_hold_all_that_fulfils_and_exactly_that_where_it_is_promised(
    conditions: list[Condition], start: int, length: int
) -> None:
    whole = OffsetRange("t", "id", 0, start, start + length)
    found = [
        offset
        for range_ in restrict([whole], conditions)
        for offset in range(range_.start_offset, range_.end_offset)
    ]
    wanted = [n for n in range(start, start + length) if all(is_met(c, n) for c in conditions)]
    assert set(wanted) <= set(found)
    if all(condition.pushdown == "full" for condition in conditions):
        assert found == wanted


@given(st.sampled_from(["<", "<=", ">", ">=", "in", "not in"]), st.integers(-1, 4))
def test_conditions_on_partitions_are_exact(operator: Operator, number: int) -> None:
    condition = Condition("partition", operator, (number,))
    assert condition.pushdown == "full"
    for partition in range(4):
        is_equal = partition == number
        expected = {"in": is_equal, "not in": not is_equal}.get(operator)
        if expected is None:
            expected = COMPARED[operator](partition, number)
        assert selects(TopicPartition("t", partition), [condition]) == expected


def test_conditions_on_topics_choose_topics() -> None:
    chosen = [Condition("topic", "in", ("a", "b")), Condition("topic", "not in", ("b",))]
    assert [selects(TopicPartition(name, 0), chosen) for name in "abc"] == [True, False, False]


@pytest.mark.parametrize(
    ("column", "operator", "fit"),
    [
        ("timestamp", ">=", "partial"),
        ("timestamp", "in", "partial"),
        ("timestamp", "<", "none"),
        ("timestamp", "not in", "none"),
        ("offset", "not in", "none"),
        ("topic", "<", "none"),
    ],
)
def test_filters_that_no_range_expresses_are_left_to_spark(
    column: str, operator: Operator, fit: str
) -> None:
    assert Condition(column, operator, (5,)).pushdown == fit


def test_a_time_is_rounded_towards_earlier_records() -> None:
    assert earliest_ms([Condition("timestamp", ">", (5_999,))]) == 6
    assert earliest_ms([Condition("timestamp", ">=", (5_999,))]) == 5
    assert earliest_ms([Condition("timestamp", "in", (9_000, 7_500))]) == 7
    assert earliest_ms([Condition("timestamp", ">", (-5_000_000,))]) is None


@pytest.fixture(scope="module")
def options(broker: BrokerThread) -> ReadOptions:
    """A topic whose timestamps fall as often as they rise."""
    with Admin(broker.servers) as admin:
        admin.create_topic("unsorted", partitions=2)
    with Producer(broker.servers) as producer:
        for first in range(0, 100, 10):
            times = [10_000 + (offset * 37) % 100 for offset in range(first, first + 10)]
            producer.send_many("unsorted", [b"x"] * 10, timestamps_ms=times, partition=0)
    given = {"millrace.servers": broker.servers, "subscribe": "unsorted"}
    return parse_read_options(given, is_stream=False)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([">", ">=", "in"]), st.integers(9_990, 10_110))
def test_no_record_is_lost_though_a_later_one_may_be_earlier(
    options: ReadOptions, operator: Operator, timestamp_ms: int
) -> None:
    ranges = plan(options, [Condition("timestamp", operator, (timestamp_ms * 1000,))])
    found = {n for each in ranges for n in range(each.start_offset, each.end_offset)}
    times = {offset: 10_000 + (offset * 37) % 100 for offset in range(100)}
    compare = {**COMPARED, "in": operators.eq}[operator]
    assert {offset for offset, time in times.items() if compare(time, timestamp_ms)} <= found


def test_a_contradiction_reads_nothing(options: ReadOptions) -> None:
    assert plan(options, [Condition("timestamp", ">", (10_100_000,))]) == []
    assert plan(options, [Condition("partition", "in", (1,))]) == []
    (found,) = plan(options, [Condition("timestamp", ">=", (10_099_000,))])
    assert (found.start_offset, found.end_offset) == (27, 100)
    (found,) = plan(options, [Condition("offset", ">", (41,)), Condition("offset", "<", (50,))])
    assert (found.start_offset, found.end_offset) == (42, 50)
