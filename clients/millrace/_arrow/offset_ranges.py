"""The offsets of a read, from its bounds: ends of the log, times, or offsets by partition.

Owns the forms of a bound and the arithmetic. Asks no broker; the caller passes the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from millrace.errors import ConfigError
from millrace.records import TopicPartition

Start = Literal["earliest"] | int | datetime | Mapping[int, int]
"""Where a read begins: at the beginning of the log, at the first record at or after a time (ms, or
an aware datetime), or at an offset by partition. Other partitions begin with the log."""
End = Literal["latest"] | int | datetime | Mapping[int, int]
"""Where a read ends, exclusive: at the end that the log has when the read begins, before the first
record at or after a time, or before an offset by partition."""
Ranges = dict[TopicPartition, tuple[int, int]]
"""The offsets `[start, end)` to read of each partition."""


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The log of a partition, `[earliest, latest)`, and the offsets of bounds that are times.

    `start_found` and `end_found` are -1 when no record is that late, and None when the bound is no
    time.
    """

    earliest: int
    latest: int
    start_found: int | None = None
    end_found: int | None = None


def time_of(name: str, bound: Start | End) -> int | None:
    """The time of a bound in ms; None for a bound that is no time. Raises `ConfigError`.

    `name` is `start` or `end`.
    """
    edge = "earliest" if name == "start" else "latest"
    if bound == edge:
        return None
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            raise ConfigError(f"{name}: {bound} has no time zone; use an aware datetime")
        bound = int(bound.timestamp() * 1000)
        if bound < 0:
            raise ConfigError(f"{name}: a record has no time before 1970")
    if _is_count(bound):
        assert isinstance(bound, int)
        return bound
    if isinstance(bound, Mapping) and all(map(_is_count, (*bound, *bound.values()))):
        return None
    raise ConfigError(
        f"{name}: {bound!r} is not {edge!r}, milliseconds since the epoch, an aware datetime, or "
        "offsets such as {0: 17}"
    )


def ranges_of(extents: Mapping[TopicPartition, LogExtent], *, start: Start, end: End) -> Ranges:
    """The offsets to read of each partition; none is empty.

    Raises `ConfigError` for offsets that the logs do not hold.
    """
    for name, bound in (("start", start), ("end", end)):
        if isinstance(bound, Mapping):
            unknown = sorted({*bound} - {where.partition for where in extents})
            if unknown:
                raise ConfigError(f"{name}: the read has no partition {unknown[0]}")
    ranges = {
        where: (
            _offset("start", where, start, extent.start_found, extent, default=extent.earliest),
            _offset("end", where, end, extent.end_found, extent, default=extent.latest),
        )
        for where, extent in sorted(extents.items())
    }
    return {where: (first, last) for where, (first, last) in ranges.items() if first < last}


def _offset(
    name: str,
    where: TopicPartition,
    bound: Start | End,
    found: int | None,
    extent: LogExtent,
    *,
    default: int,
) -> int:
    if found is not None:
        # The record may have been appended after `latest` was asked for.
        return extent.latest if found < 0 else min(found, extent.latest)
    named = bound.get(where.partition) if isinstance(bound, Mapping) else None
    if named is None:
        return default
    if not extent.earliest <= named <= extent.latest:
        raise ConfigError(
            f"{name}: {where} has offsets from {extent.earliest} to {extent.latest}, and "
            f"{named} is not among them"
        )
    return named


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
