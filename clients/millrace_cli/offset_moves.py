"""Where `millrace group reset` moves the offsets of a group: what was typed, and the plan.

Owns the goals, what they come to in each partition, and what cannot be reached. Asks nobody: what
is known of the partitions is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace.records import TopicPartition
from millrace_cli.exits import Refusal


class Known(NamedTuple):
    """One partition: what the group has committed, and what can be read, `end` exclusive.

    `at_time` is the offset of the first record at or after the goal's time, None for no such.
    """

    committed: int | None
    start: int
    end: int
    at_time: int | None = None


class Move(NamedTuple):
    """What a reset does to one partition."""

    where: TopicPartition
    committed: int | None
    to: int


@dataclass(frozen=True, slots=True)
class Goal:
    """Where to go: exactly one is set. `time_ms` is since the epoch; `shift` may be negative."""

    end: str = ""
    offset: int | None = None
    time_ms: int | None = None
    shift: int | None = None


def plan(goal: Goal, known: Mapping[TopicPartition, Known]) -> list[Move]:
    """A move for each partition, in order. Raises `Refusal` when one of them cannot be made."""
    return [
        Move(where, known[where].committed, _target(goal, where, known[where]))
        for where in sorted(known)
    ]


def _target(goal: Goal, where: TopicPartition, known: Known) -> int:
    if goal.shift is not None:
        if known.committed is None:
            raise Refusal(
                f"the group has committed nothing for {where}, so there is nothing to shift; "
                "reset it to an offset or an end"
            )
        return min(max(known.committed + goal.shift, known.start), known.end)
    if goal.offset is not None:
        if not known.start <= goal.offset <= known.end:
            raise Refusal(
                f"{where} reaches from offset {known.start} to {known.end}; {goal.offset} is not "
                "in it. Name another offset, or other partitions with --topic"
            )
        return goal.offset
    if goal.time_ms is not None:
        return known.end if known.at_time is None else known.at_time
    return known.start if goal.end == "earliest" else known.end


def chosen_partitions(named: Sequence[str]) -> dict[str, list[int] | None]:
    """Topics to the partitions chosen of each, None for all.

    Raises `ValueError` for what is neither a topic nor a topic and numbers.

    >>> chosen_partitions(["clicks:2,0", "views", "clicks:1"])
    {'clicks': [0, 1, 2], 'views': None}
    """
    chosen: dict[str, list[int] | None] = {}
    for text in named:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise ValueError(f"{text!r} names no topic")
        if not colon:
            chosen[topic] = None
            continue
        wanted = []
        for number in numbers.split(","):
            if not (number.isascii() and number.isdigit() and len(number) < 10):
                raise ValueError(f"{text!r}: {number!r} is no partition; type {topic}:0,1")
            wanted.append(int(number))
        before = chosen.get(topic, [])
        chosen[topic] = None if before is None else sorted({*before, *wanted})
    return chosen
