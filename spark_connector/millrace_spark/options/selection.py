"""The topics and partitions that a read selects, as the options give them.

Owns the three options of Spark's Kafka source and their parsing. The planner finds out whether a
topic exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millrace_spark.errors import OptionError

INTERNAL_PREFIX = "__"
"""The prefix of the broker's internal topics; no pattern selects them."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]

    def __str__(self) -> str:
        return "subscribe"

    def selects(self, topic: str, partition: int) -> bool:
        """Whether the partition is selected if it exists."""
        return topic in self.topics


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose names contain a match of the pattern.

    Spark's Kafka source does the same, though Kafka's consumers match the whole name: `shop`
    selects `shop-a`, and `^shop$` does not.
    """

    pattern: str

    def __str__(self) -> str:
        return "subscribePattern"

    def selects(self, topic: str, partition: int) -> bool:
        """Whether the partition is selected if it exists."""
        if topic.startswith(INTERNAL_PREFIX):
            return False
        # ASCII: in Java's patterns \d and \w match ASCII only, by default.
        return re.search(self.pattern, topic, re.ASCII) is not None

    def topics_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names that match, sorted."""
        return tuple(sorted(name for name in names if self.selects(name, 0)))


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions, by topic."""

    partitions: Mapping[str, tuple[int, ...]]

    def __str__(self) -> str:
        return "assign"

    def selects(self, topic: str, partition: int) -> bool:
        """Whether the partition is selected if it exists."""
        return partition in self.partitions.get(topic, ())


Selection = Subscribe | SubscribePattern | Assign
OPTIONS = ("subscribe", "subscribePattern", "assign")


def parse_selection(option: str, text: str) -> Selection:
    """The selection in one of `OPTIONS`. Raises `OptionError`.

    >>> parse_selection("subscribe", "clicks, views")
    Subscribe(topics=('clicks', 'views'))
    >>> parse_selection("assign", '{"clicks": [1, 0]}')
    Assign(partitions={'clicks': (0, 1)})
    """
    text = text.strip()
    if option == "subscribe":
        return _subscribe(option, text)
    if option == "subscribePattern":
        return _pattern(option, text)
    return _assign(option, text)


def _subscribe(option: str, text: str) -> Subscribe:
    names = (name.strip() for name in text.split(","))
    topics = tuple(dict.fromkeys(name for name in names if name))
    if not topics:
        raise OptionError(option, "names no topic; give one, or several with commas between")
    return Subscribe(topics)


def _pattern(option: str, text: str) -> SubscribePattern:
    if not text:
        raise OptionError(option, "is empty; give a regular expression such as clicks-.*")
    try:
        re.compile(text, re.ASCII)
    except (re.error, RecursionError) as error:
        raise OptionError(
            option, f"{text!r} is not a regular expression of Python: {error}"
        ) from None
    return SubscribePattern(text)


def _assign(option: str, text: str) -> Assign:
    form = 'JSON such as {"clicks": [0, 1]}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(option, f"is not {form}: {error}") from None
    if not isinstance(found, dict) or not found:
        raise OptionError(option, f"{text!r} is not {form}")
    for topic, partitions in found.items():
        if (
            not isinstance(partitions, list)
            or not partitions
            or not all(type(p) is int and 0 <= p < 2**31 for p in partitions)
        ):
            raise OptionError(option, f"{topic} needs a list of partitions; use {form}")
    return Assign({topic: tuple(sorted(set(found[topic]))) for topic in found})
