"""Filter pushdown: conditions on topic, partition, offset and time restrict the ranges of a read.

Owns the decision whether ranges express a condition fully, partially, or not at all. Knows no
classes of Spark; `spark_filters` translates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from millrace.records import TopicPartition
from millrace_spark.reading.ranges import OffsetRange

Operator = Literal["in", "not in", "<", "<=", ">", ">="]
Pushdown = Literal["full", "partial", "none"]


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator values`; comparisons have one value.

    Values are strings for `topic`, and numbers for other columns. Those of `timestamp` are
    microseconds since the epoch.
    """

    column: str
    operator: Operator
    values: tuple[str | int, ...]

    @property
    def pushdown(self) -> Pushdown:
        """How far ranges express the condition.

        With `partial`, the ranges have other records too, and Spark must check each record. A time
        is never `full`, and restricts the beginning only: the broker finds the first record at or
        after a time, and later records may have earlier times.
        """
        if self.column == "topic":
            return "full" if self.operator in ("in", "not in") else "none"
        if self.column == "partition":
            return "full"
        if self.column == "offset" and self.operator != "not in":
            return "partial" if len(self.values) > 1 else "full"
        if self.column == "timestamp" and self.operator in ("in", ">", ">="):
            return "partial"
        return "none"

    @property
    def interval(self) -> tuple[int, int | None]:
        """The smallest `[start, end)` with all numbers that fulfil it; an `end` of None is open."""
        numbers = [value for value in self.values if isinstance(value, int)]
        if self.operator == "in" and numbers:
            return min(numbers), max(numbers) + 1
        if self.operator in ("<", "<="):
            return 0, numbers[0] + (self.operator == "<=")
        if self.operator in (">", ">="):
            return numbers[0] + (self.operator == ">"), None
        return 0, (None if self.operator == "not in" else 0)

    def holds_for(self, value: str | int) -> bool:
        """Whether a value of the column fulfils it."""
        if self.operator in ("in", "not in"):
            return (value in self.values) == (self.operator == "in")
        start, end = self.interval
        return isinstance(value, int) and start <= value and (end is None or value < end)


def selects(where: TopicPartition, conditions: Iterable[Condition]) -> bool:
    """Whether the partition fulfils the conditions on topic and partition."""
    names: dict[str, str | int] = {"topic": where.topic, "partition": where.partition}
    return all(
        condition.holds_for(names[condition.column])
        for condition in conditions
        if condition.column in names
    )


def restrict(ranges: Sequence[OffsetRange], conditions: Sequence[Condition]) -> list[OffsetRange]:
    """The parts of the ranges that fulfil the conditions on offsets, without empty ones."""
    intervals = [condition.interval for condition in conditions if condition.column == "offset"]
    start = max((first for first, _ in intervals), default=0)
    ends = [end for _, end in intervals if end is not None]
    found = []
    for whole in ranges:
        first = max(whole.start_offset, start)
        last = min(whole.end_offset, *ends) if ends else whole.end_offset
        if first < last:
            found.append(replace(whole, start_offset=first, end_offset=last))
    return found


def earliest_ms(conditions: Sequence[Condition]) -> int | None:
    """The earliest time in milliseconds that fulfils the conditions; None for no such bound.

    Always positive: a request for a time of -1 or -2 asks for an end of the log.
    """
    starts_us = [
        condition.interval[0] for condition in conditions if condition.column == "timestamp"
    ]
    found = max(starts_us, default=0) // 1000
    return found if found > 0 else None
