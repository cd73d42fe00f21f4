"""The plan of `millrace topic trim`: the first offset that each partition keeps.

Owns the targets, their offsets in each partition, and the errors. Asks no broker: the caller passes
the offsets of the partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millrace.records import TopicPartition
from millrace_cli.exits import CommandError


class LogRange(NamedTuple):
    """The log of a partition, `[start, end)`.

    `at_time` is the offset of the first record at or after the target's time; None for no record.
    """

    start: int
    end: int
    at_time: int | None = None


class Trim(NamedTuple):
    """The trim of one partition: `[before, after)` is deleted."""

    where: TopicPartition
    before: int
    after: int

    @property
    def offsets(self) -> int:
        """How many offsets are deleted; a compacted log has fewer records than offsets."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class TrimTarget:
    """What a trim keeps: exactly one field is set. `is_end` keeps no record."""

    offset: int | None = None
    time_ms: int | None = None
    is_end: bool = False


def plan_trim(target: TrimTarget, logs: Mapping[TopicPartition, LogRange]) -> list[Trim]:
    """A trim for each partition, in order. Raises `CommandError` where there is no such offset.

    A partition that begins behind the offset already keeps its start.
    """
    return [
        Trim(where, logs[where].start, _first_kept(target, where, logs[where]))
        for where in sorted(logs)
    ]


def _first_kept(target: TrimTarget, where: TopicPartition, log: LogRange) -> int:
    if target.is_end:
        return log.end
    if target.time_ms is not None:
        return log.end if log.at_time is None else max(log.at_time, log.start)
    assert target.offset is not None
    if target.offset > log.end:
        raise CommandError(
            f"{where} has offsets from {log.start} to {log.end}; {target.offset} is not among "
            "them. Give another offset, or other partitions with --partition"
        )
    return max(target.offset, log.start)
