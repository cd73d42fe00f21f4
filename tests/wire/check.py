"""Checks: functions tagged with the rules that they check, and their runner."""

from __future__ import annotations

import itertools
import secrets
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tests.wire.client import Connection, Text
from tests.wire.layouts import Fields

_numbers = itertools.count(1)
_RUN = secrets.token_hex(4)


class Target:
    """The broker that is checked, and shortcuts for what nearly every check does."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def connect(self, *, hello: bool = True) -> Connection:
        """A new connection."""
        return Connection(self.address, hello=hello)

    def text(self) -> Text:
        """A new connection of the text dialect."""
        return Text(self.address)

    def name(self, kind: str = "topic") -> str:
        """A name that nothing on the broker has."""
        return f"wire-{_RUN}-{kind}-{next(_numbers)}"

    def topic(self, wire: Connection, partitions: int = 1, **configs: str) -> str:
        """A new topic that keeps records of 1970; its name."""
        name = self.name()
        settings = {"retention.ms": "-1"}
        settings |= {key.replace("_", "."): value for key, value in configs.items()}
        created = wire.call(
            "CreateTopics", [(name, partitions, -1, list(settings.items()), [])], False
        )
        equal(created.topics[0].error_code, 0, "CreateTopics")
        return name


def produce(
    wire: Connection, topic: str, *batches: bytes, acks: int = -1, timeout_ms: int = 30_000
) -> Fields:
    """Produces to partition 0, 1, ...; the last result."""
    partitions = [(topic, number, batch) for number, batch in enumerate(batches)]
    results = wire.call("Produce", acks, timeout_ms, partitions).partitions
    equal(len(results), len(batches), "results")
    return results[-1]  # type: ignore[no-any-return]


def fetch(
    wire: Connection,
    topic: str,
    offset: int,
    *,
    max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    partition: int = 0,
) -> Fields:
    """Fetches one partition without waiting; its result."""
    entry = (topic, partition, leader_epoch, offset, max_bytes)
    return wire.call("Fetch", 0, 0, 1 << 20, [entry], None).partitions[0]  # type: ignore[no-any-return]


def offset_at(wire: Connection, topic: str, timestamp_ms: int) -> tuple[int, int, int]:
    """Error code, offset and timestamp that ListOffsets answers."""
    found = wire.call("ListOffsets", [(topic, 0, timestamp_ms)]).partitions[0]
    return found.error_code, found.offset, found.timestamp_ms


def codes(results: Sequence[Fields]) -> list[int]:
    """The error code of each result."""
    return [result.error_code for result in results]


def equal(found: Any, expected: Any, what: str) -> None:
    """Fails the check unless both are equal."""
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, expected {expected!r}")


def true(fact: object, what: str) -> None:
    """Fails the check unless the fact holds."""
    if not fact:
        raise AssertionError(what)


class Check(NamedTuple):
    """One check; its docstring states the fact that it asks for."""

    rules: tuple[str, ...]
    function: Callable[[Target], None]

    @property
    def name(self) -> str:
        return self.function.__name__

    def run(self, target: Target) -> str | None:
        """Why the check fails, None when it passes."""
        try:
            self.function(target)
        except AssertionError as failure:
            return str(failure)
        except Exception as error:
            return "".join(traceback.format_exception(error, limit=-3)).strip()
        return None


CHECKS: list[Check] = []


def check(*rules: str) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
    """Marks a function as a check of these rules."""

    def mark(function: Callable[[Target], None]) -> Callable[[Target], None]:
        CHECKS.append(Check(rules, function))
        return function

    return mark


def chosen(prefixes: Sequence[str]) -> Iterator[Check]:
    """The checks of rules, or with names, that begin with one of the prefixes; all for none."""
    for each in CHECKS:
        if not prefixes or any(
            word.startswith(prefix) for prefix in prefixes for word in (*each.rules, each.name)
        ):
            yield each
