"""The options of a read: names, defaults, and what is refused.

Owns validation, so that a wrong option fails at `load()` in a sentence that names it. Asks no
broker: that a topic exists is found out when the read is planned.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from millrace.config import parse_servers
from millrace.errors import ConfigError
from millrace_spark.bounds import AtOffsets, Bound, Edge, check_order, parse_bound
from millrace_spark.errors import OptionError

DEADLINE_MS_MIN = 100
DEADLINE_MS_MAX = 24 * 60 * 60 * 1000
OFFSETS_PER_PARTITION_MAX = 2**63 - 1
OnDataLoss = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, and how; made by `parse_read_options`."""

    servers: str
    """`host:port`, or several with commas between."""
    topics: tuple[str, ...]
    """Option `topic`: one, or several with commas between."""
    start: Bound = Edge.EARLIEST
    """First record, included."""
    end: Bound = Edge.LATEST
    """Where to stop, excluded. `latest` is the end of the log when the read is planned."""
    max_offsets_per_partition: int | None = None
    """A longer range of a topic partition becomes several Spark partitions of about equal size.
    None: one Spark partition for each topic partition."""
    on_data_loss: OnDataLoss = "fail"
    """What to do when records that were asked for are gone: fail, or skip them and log it."""
    deadline_ms: int = 30_000
    """Longest wait for a connection, for an answer, or for the next records of a task."""


_NAMES = tuple("topic" if field.name == "topics" else field.name for field in fields(ReadOptions))


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of one read; names in any case. Raises `OptionError`.

    >>> parse_read_options({"servers": "localhost", "topic": "clicks, views"}).topics
    ('clicks', 'views')
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in _NAMES:
            raise OptionError(name, _advice(name))
    parsed: dict[str, Any] = {
        "servers": _servers(_required(given, "servers")),
        "topics": _topics(_required(given, "topic")),
    }
    for name, parse in _PARSERS.items():
        if name in given:
            parsed[name] = parse(name, given[name])
    read = ReadOptions(**parsed)
    check_order(read.start, read.end)
    for name, bound in (("start", read.start), ("end", read.end)):
        if isinstance(bound, AtOffsets):
            for topic in bound.offsets.keys() - set(read.topics):
                raise OptionError(name, f"names {topic}, which is not in the option topic")
    return read


def _required(given: Mapping[str, str], name: str) -> str:
    if name not in given:
        raise OptionError(name, f'is missing; add .option("{name}", ...)')
    return given[name]


def _advice(name: str) -> str:
    if name == "path":
        return 'there are no paths; name the topic with .option("topic", ...) and call load() bare'
    close = difflib.get_close_matches(name, _NAMES, n=1)
    meant = f"; did you mean {close[0]}?" if close else "."
    return f"no such option{meant} There are {', '.join(_NAMES)}"


def _servers(text: str) -> str:
    try:
        parse_servers(text)
    except ConfigError as error:
        raise OptionError("servers", str(error).removeprefix("servers: ")) from None
    return text


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(name.strip() for name in text.split(","))
    if not all(topics):
        raise OptionError("topic", f"{text!r} has an empty name; separate names by one comma")
    for topic in topics:
        if topics.count(topic) > 1:
            raise OptionError("topic", f"names {topic} twice; its records would be counted twice")
    return topics


def _count(minimum: int, maximum: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit()) or not minimum <= int(digits) <= maximum:
            reason = f"{text!r} is not a whole number from {minimum} to {maximum}"
            raise OptionError(name, reason)
        return int(digits)

    return parse


def _word(*words: str) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        if text.strip().lower() not in words:
            raise OptionError(name, f"{text!r} is not {' or '.join(words)}")
        return text.strip().lower()

    return parse


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "start": parse_bound,
    "end": parse_bound,
    "max_offsets_per_partition": _count(1, OFFSETS_PER_PARTITION_MAX),
    "on_data_loss": _word("fail", "skip"),
    "deadline_ms": _count(DEADLINE_MS_MIN, DEADLINE_MS_MAX),
}
