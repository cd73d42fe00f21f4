"""The bounds of a read, as the options give them.

Owns their forms and their parsing: the forms of Spark's Kafka source and, for times, ISO 8601
beside milliseconds. Knows no log: `reading.ranges` turns a bound into offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from millrace_spark.errors import OptionError

OFFSET_MAX = 2**63 - 1
TOPIC_IDS = "#topic_ids"
"""The key of the topics' ids in a stream's checkpoint; no topic can have this name."""
OFFSET_EARLIEST = -2
"""Stands for the earliest offset, as in Kafka."""
OFFSET_LATEST = -1
"""Stands for the end of the log, as in Kafka."""


class Edge(Enum):
    """An end of the log at the time of planning."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time in each partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """A time by topic and partition; other partitions are read from or to the edge of the log."""

    timestamps_ms: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset by topic and partition, or `OFFSET_EARLIEST` or `OFFSET_LATEST`.

    Other partitions are read from or to the edge of the log.
    """

    offsets: Mapping[str, Mapping[int, int]]


Bound = Edge | AtTime | AtTimes | AtOffsets


def option_of(bound: Bound, *, is_start: bool) -> str:
    """The name of the option that gives such a bound."""
    side = "starting" if is_start else "ending"
    if isinstance(bound, AtTime):
        return f"{side}Timestamp"
    if isinstance(bound, AtTimes):
        return f"{side}OffsetsByTimestamp"
    return f"{side}Offsets"


def named_partitions(bound: Bound) -> Iterator[tuple[str, int, int]]:
    """Topic, partition, and offset or milliseconds, of every partition that a bound names."""
    named: Mapping[str, Mapping[int, int]] = {}
    if isinstance(bound, AtOffsets):
        named = bound.offsets
    elif isinstance(bound, AtTimes):
        named = bound.timestamps_ms
    for topic, partitions in named.items():
        for partition, number in partitions.items():
            yield topic, partition, number


def parse_offsets(option: str, text: str) -> Edge | AtOffsets:
    """The bound in `startingOffsets` or `endingOffsets`. Raises `OptionError`.

    >>> parse_offsets("startingOffsets", "Earliest")
    <Edge.EARLIEST: 'earliest'>
    >>> parse_offsets("endingOffsets", '{"clicks": {"0": 23, "1": -1}}')
    AtOffsets(offsets={'clicks': {0: 23, 1: -1}})
    """
    text = text.strip()
    if text.lower() in ("earliest", "latest"):
        return Edge(text.lower())
    if not text.startswith("{"):
        time = option.replace("Offsets", "Timestamp")
        raise OptionError(
            option,
            f'{text!r} is not earliest, latest, or offsets such as {{"clicks": {{"0": 23}}}}; '
            f"a time goes into {time}",
        )
    return AtOffsets(_by_partition(option, text, _offset, example="23"))


def parse_times(option: str, text: str) -> AtTimes:
    """The bound in `startingOffsetsByTimestamp` or `endingOffsetsByTimestamp`.

    Raises `OptionError`.
    """
    return AtTimes(_by_partition(option, text.strip(), _timestamp, example="1700000000000"))


def parse_time(option: str, text: str) -> AtTime:
    """The bound in `startingTimestamp` or `endingTimestamp`. Raises `OptionError`.

    >>> parse_time("startingTimestamp", "1970-01-01T00:00:01Z")
    AtTime(timestamp_ms=1000)
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        if len(text) > 19 or int(text) > OFFSET_MAX:
            raise OptionError(option, f"{text} ms is more than a timestamp can hold")
        return AtTime(int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            option,
            f"{text!r} is neither milliseconds since the epoch nor a time such as "
            "2026-01-31T12:00:00Z",
        ) from None
    if time.tzinfo is None:
        raise OptionError(option, f"{text!r} has no time zone; append Z, or an offset as +01:00")
    timestamp_ms = int(time.timestamp() * 1000)
    if timestamp_ms < 0:
        raise OptionError(option, f"{text!r} is before 1970; a timestamp cannot be negative")
    return AtTime(timestamp_ms)


def check_batch_bounds(start: Bound, end: Bound) -> None:
    """Raises `OptionError` for bounds that Kafka forbids in a batch, or that enclose no record."""
    first, last = option_of(start, is_start=True), option_of(end, is_start=False)
    if start is Edge.LATEST:
        raise OptionError(
            first, "cannot be latest in a batch: no record follows; use startingTimestamp"
        )
    if end is Edge.EARLIEST:
        raise OptionError(last, "cannot be earliest: no record precedes; use latest")
    if isinstance(start, AtOffsets):
        _forbid(first, start, OFFSET_LATEST, "latest")
    if isinstance(end, AtOffsets):
        _forbid(last, end, OFFSET_EARLIEST, "earliest")
    if isinstance(start, AtTime) and isinstance(end, AtTime):
        if start.timestamp_ms > end.timestamp_ms:
            raise OptionError(first, f"is later than {last}; swap them")
    elif type(start) is type(end):
        ends = {(topic, partition): number for topic, partition, number in named_partitions(end)}
        for topic, partition, number in named_partitions(start):
            end_number = ends.get((topic, partition), number)
            if number > end_number >= 0:
                raise OptionError(
                    first, f"{topic}-{partition} starts at {number}, behind its end {end_number}"
                )


def _forbid(option: str, bound: AtOffsets, offset: int, meaning: str) -> None:
    for topic, partition, number in named_partitions(bound):
        if number == offset:
            raise OptionError(
                option,
                f"{offset} for {topic}-{partition} means {meaning}, which cannot be in a batch; "
                "give an offset",
            )


def _by_partition(
    option: str, text: str, parse: Callable[[str, str, Any], int], *, example: str
) -> dict[str, dict[int, int]]:
    form = f'{{"clicks": {{"0": {example}}}}}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(option, f"is not JSON such as {form}: {error}") from None
    if not isinstance(found, dict):
        raise OptionError(option, f"{text!r} is not a JSON object such as {form}")
    # A checkpoint of a stream has this key.
    found.pop(TOPIC_IDS, None)
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise OptionError(
                option,
                f'{topic} needs an object of partitions, as in {{"{topic}": {{"0": {example}}}}}',
            )
    return {
        topic: {
            _partition(option, topic, name): parse(option, f"{topic}-{name}", value)
            for name, value in partitions.items()
        }
        for topic, partitions in found.items()
    }


def _partition(option: str, topic: str, name: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) <= 10) or int(name) > 2**31 - 1:
        raise OptionError(option, f"{name!r} of {topic} is not a partition number")
    return int(name)


def _offset(option: str, where: str, value: Any) -> int:
    if type(value) is not int or not OFFSET_EARLIEST <= value <= OFFSET_MAX:
        raise OptionError(
            option,
            f"{value!r} is not an offset of {where}; use 0 or more, -2 for earliest, -1 for latest",
        )
    return value


def _timestamp(option: str, where: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= OFFSET_MAX:
        raise OptionError(
            option, f"{value!r} is not a time for {where}; use milliseconds since the epoch"
        )
    return value
