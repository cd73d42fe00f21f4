"""Where a read begins and ends, as a user says it.

Owns the four ways to say it and their parsing. Refuses to know what the log holds: `ranges` turns
a bound into offsets.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from millrace_spark.errors import OptionError

OFFSET_MAX = 2**63 - 1
_FORMS = (
    "earliest, latest, milliseconds since the epoch, a time such as 2026-01-31T12:00:00Z, "
    'or offsets such as {"clicks": {"0": 23}}'
)


class Edge(Enum):
    """An end of the log, as it is when the read is planned."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time in each partition; the end where there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset by topic and partition; a partition that is not named is read to its edge."""

    offsets: dict[str, dict[int, int]]


Bound = Edge | AtTime | AtOffsets


def parse_bound(option: str, text: str) -> Bound:
    """A bound from the value of the option named `option`. Raises `OptionError`.

    >>> parse_bound("start", "1970-01-01T00:00:01Z")
    AtTime(timestamp_ms=1000)
    >>> parse_bound("end", '{"clicks": {"0": 23}}')
    AtOffsets(offsets={'clicks': {0: 23}})
    """
    text = text.strip()
    if text.lower() in ("earliest", "latest"):
        return Edge(text.lower())
    if text.startswith("{"):
        return _parse_offsets(option, text)
    if text.isascii() and text.isdigit():
        timestamp_ms = int(text)
        if timestamp_ms > OFFSET_MAX:
            raise OptionError(option, f"{text} ms is beyond what a timestamp can be")
        return AtTime(timestamp_ms)
    return _parse_time(option, text)


def check_order(start: Bound, end: Bound) -> None:
    """Raises `OptionError` when `start` lies behind `end` whatever the log holds."""
    if isinstance(start, AtTime) and isinstance(end, AtTime):
        if start.timestamp_ms > end.timestamp_ms:
            raise OptionError("start", "is later than end; swap them")
    elif isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        for topic, partitions in start.offsets.items():
            for partition, first in partitions.items():
                last = end.offsets.get(topic, {}).get(partition)
                if last is not None and first > last:
                    raise OptionError(
                        "start", f"{topic}-{partition} starts at {first}, behind its end {last}"
                    )


def _parse_time(option: str, text: str) -> AtTime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(option, f"{text!r} is not {_FORMS}") from None
    if time.tzinfo is None:
        raise OptionError(option, f"{text!r} has no time zone; append Z, or an offset as +01:00")
    timestamp_ms = int(time.timestamp() * 1000)
    if timestamp_ms < 0:
        raise OptionError(option, f"{text!r} is before 1970, where no timestamp can be")
    return AtTime(timestamp_ms)


def _parse_offsets(option: str, text: str) -> AtOffsets:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(option, f"the offsets are not JSON: {error}") from None
    offsets: dict[str, dict[int, int]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise OptionError(
                option, f'{topic} needs an object of partitions, as in {{"{topic}": {{"0": 23}}}}'
            )
        offsets[topic] = {
            _partition(option, topic, name): _offset(option, topic, name, value)
            for name, value in partitions.items()
        }
    return AtOffsets(offsets)


def _partition(option: str, topic: str, name: str) -> int:
    if not (name.isascii() and name.isdigit()) or int(name) > 2**31 - 1:
        raise OptionError(option, f"{name!r} of {topic} is not a partition number")
    return int(name)


def _offset(option: str, topic: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= OFFSET_MAX:
        raise OptionError(option, f"{value!r} is not an offset of {topic}-{name}; use 0 or more")
    return value
