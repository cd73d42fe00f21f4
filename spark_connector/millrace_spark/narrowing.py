"""Conditions on a record's place and time, and what they leave of the ranges of a read.

Owns the decision which condition a range can express, exactly or roughly. Refuses to know how
Spark writes a condition; that is `filters`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from millrace.records import TopicPartition
from millrace_spark.ranges import OffsetRange

Operator = Literal["in", "not in", "<", "<=", ">", ">="]
Fit = Literal["exact", "rough", "none"]


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator values`; comparisons have one value.

    Values are strings for `topic`, numbers for the others; for `timestamp` they are microseconds
    since the epoch.
    """

    column: str
    operator: Operator
    values: tuple[str | int, ...]

    @property
    def fit(self) -> Fit:
        """Whether ranges hold exactly the records of the condition, those and others, or all.

        Rough ones must be checked again for each record. A time is never exact, and narrows the
        beginning only: what a broker finds for a time is the first record that is so late, and
        records behind that may be earlier.
        """
        if self.column == "topic":
            return "exact" if self.operator in ("in", "not in") else "none"
        if self.column == "partition":
            return "exact"
        if self.column == "offset" and self.operator != "not in":
            return "rough" if len(self.values) > 1 else "exact"
        if self.column == "timestamp" and self.operator in ("in", ">", ">="):
            return "rough"
        return "none"

    @property
    def hull(self) -> tuple[int, int | None]:
        """The numbers `[start, end)` around all that fulfil it; an `end` of None is open."""
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
        start, end = self.hull
        return isinstance(value, int) and start <= value and (end is None or value < end)


def keeps(where: TopicPartition, conditions: Iterable[Condition]) -> bool:
    """Whether the conditions on topic and partition leave anything of the partition."""
    names: dict[str, str | int] = {"topic": where.topic, "partition": where.partition}
    return all(
        condition.holds_for(names[condition.column])
        for condition in conditions
        if condition.column in names
    )


def narrow(ranges: Sequence[OffsetRange], conditions: Sequence[Condition]) -> list[OffsetRange]:
    """What the conditions on offsets leave of the ranges; those that would be empty are gone."""
    hulls = [condition.hull for condition in conditions if condition.column == "offset"]
    start = max((first for first, _ in hulls), default=0)
    ends = [end for _, end in hulls if end is not None]
    found = []
    for whole in ranges:
        first = max(whole.start_offset, start)
        last = min(whole.end_offset, *ends) if ends else whole.end_offset
        if first < last:
            found.append(replace(whole, start_offset=first, end_offset=last))
    return found


def earliest_ms(conditions: Sequence[Condition]) -> int | None:
    """A time in milliseconds before which no record fulfils the conditions; None for none.

    Always positive: a record without a timestamp has one of -1, and asked for as a time of the
    log that is another question.
    """
    starts_us = [condition.hull[0] for condition in conditions if condition.column == "timestamp"]
    found = max(starts_us, default=0) // 1000
    return found if found > 0 else None
