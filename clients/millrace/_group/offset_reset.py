"""The plan of a reset: where it leads, and the new offset of a group in each partition.

Owns the targets, their offsets in each partition, and the error. Asks no broker: the caller passes
the offsets of the partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millrace.records import TopicPartition


class NoSuchOffset(Exception):
    """A partition has no offset that the target names; the sentence is for the user."""


class PartitionOffsets(NamedTuple):
    """The committed offset of a partition, and its log, `[start, end)`.

    `at_time` is the offset of the first record at or after the target's time; None for no record.
    """

    committed: int | None
    start: int
    end: int
    at_time: int | None = None


class Move(NamedTuple):
    """The reset of one partition."""

    where: TopicPartition
    committed: int | None
    to: int


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a reset: exactly one field is set. `shift` may be negative."""

    end: str = ""
    offset: int | None = None
    time_ms: int | None = None
    shift: int | None = None


def plan(target: Target, known: Mapping[TopicPartition, PartitionOffsets]) -> list[Move]:
    """A move for each partition, in order. Raises `NoSuchOffset`."""
    return [
        Move(where, known[where].committed, _offset(target, where, known[where]))
        for where in sorted(known)
    ]


def _offset(target: Target, where: TopicPartition, known: PartitionOffsets) -> int:
    if target.shift is not None:
        if known.committed is None:
            raise NoSuchOffset(
                f"the group has no committed offset for {where} to shift; reset it to an offset, "
                "to the earliest, or to the latest"
            )
        return min(max(known.committed + target.shift, known.start), known.end)
    if target.offset is not None:
        if not known.start <= target.offset <= known.end:
            raise NoSuchOffset(
                f"{where} has offsets from {known.start} to {known.end}; {target.offset} is not "
                "among them. Give another offset, or other partitions"
            )
        return target.offset
    if target.time_ms is not None:
        return known.end if known.at_time is None else known.at_time
    return known.start if target.end == "earliest" else known.end
