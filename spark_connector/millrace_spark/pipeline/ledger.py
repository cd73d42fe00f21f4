"""What a directory holds of each partition, and the landing that is under way: the ledger.

Owns the document, its steps and its form as JSON. Refuses to know files and brokers: `directory`
stores it, `landing_plan` says what lands next.

    rest ── opened(landing) ──► under way ── landed() ──► rest
             │                    │
             before any file      after every file is durable and the group's offsets are committed

Invariant: a file of `[start, end)` is in the directory, or being written, only if that range is
part of `held`, or of `landing`; so a ledger that was stored before the first file of a landing is
all that a run after a crash needs. Bounded: what has landed is one interval for each partition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.records import TopicPartition
from millrace_spark.pipeline.errors import LedgerError
from millrace_spark.ranges import OffsetRange

VERSION = 1


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets `[start_offset, end_offset)` of one incarnation of a topic; may be empty."""

    topic_id: str
    start_offset: int
    end_offset: int

    def __len__(self) -> int:
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class Landing:
    """What lands together: where each partition goes from and to, and the pieces to read.

    The ranges cover the spans, in order and without overlap, but for records that were given up
    as lost. One range is one task, and names its files.
    """

    number: int
    spans: Mapping[TopicPartition, Span]
    ranges: tuple[OffsetRange, ...]

    def __len__(self) -> int:
        return sum(map(len, self.ranges))


@dataclass(frozen=True, slots=True)
class Shape:
    """What the files of a directory look like, the same in every landing."""

    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    schema: str | None = None
    """The schema of the values as Spark's JSON; None for values that stay bytes."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The account of one directory. `directory_id` stays with it when it is moved."""

    directory_id: str
    group: str
    shape: Shape
    held: Mapping[TopicPartition, Span] = field(default_factory=dict)
    """What has landed, from the first offset on."""
    landings: int = 0
    """How many have landed."""
    landing: Landing | None = None
    """The one under way."""

    def opened(self, landing: Landing) -> Ledger:
        """The ledger to store before the first file of a landing."""
        if self.landing is not None or landing.number != self.landings + 1:
            raise LedgerError(f"landing {landing.number} cannot follow {self.landings}")
        return replace(self, landing=landing)

    def landed(self) -> Ledger:
        """The ledger to store when all files are there and the group's offsets are committed."""
        if self.landing is None:
            raise LedgerError("no landing is under way")
        held = dict(self.held)
        for where, span in self.landing.spans.items():
            before = held.get(where, span)
            held[where] = Span(span.topic_id, before.start_offset, span.end_offset)
        return replace(self, held=held, landings=self.landing.number, landing=None)

    def topics(self) -> set[str]:
        """The topics of which something has landed."""
        return {where.topic for where in self.held}


def encode(ledger: Ledger) -> bytes:
    """The ledger as JSON."""
    document = {
        "version": VERSION,
        "directory_id": ledger.directory_id,
        "group": ledger.group,
        "format": ledger.shape.format,
        "partition_by": list(ledger.shape.partition_by),
        "schema": ledger.shape.schema,
        "landings": ledger.landings,
        "held": _spans(ledger.held),
        "landing": None
        if ledger.landing is None
        else {
            "number": ledger.landing.number,
            "spans": _spans(ledger.landing.spans),
            "ranges": [
                [each.topic, each.topic_id, each.partition, each.start_offset, each.end_offset]
                for each in ledger.landing.ranges
            ],
        },
    }
    return json.dumps(document, indent=1).encode()


def decode(data: bytes) -> Ledger:
    """The ledger of its JSON. Raises `LedgerError` for what `encode` has not made."""
    try:
        document = json.loads(data)
        if document["version"] != VERSION:
            raise LedgerError(f"is of version {document['version']}, and this is for {VERSION}")
        return _ledger(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LedgerError(f"is damaged ({type(error).__name__}: {error})") from None


def _ledger(document: dict[str, Any]) -> Ledger:
    landing = document["landing"]
    return Ledger(
        str(document["directory_id"]),
        str(document["group"]),
        Shape(document["format"], tuple(document["partition_by"]), document["schema"]),
        _read_spans(document["held"]),
        int(document["landings"]),
        None
        if landing is None
        else Landing(
            int(landing["number"]),
            _read_spans(landing["spans"]),
            tuple(OffsetRange(*each) for each in landing["ranges"]),
        ),
    )


def _spans(spans: Mapping[TopicPartition, Span]) -> dict[str, dict[str, list[Any]]]:
    topics: dict[str, dict[str, list[Any]]] = {}
    for where, span in sorted(spans.items()):
        entry = [span.topic_id, span.start_offset, span.end_offset]
        topics.setdefault(where.topic, {})[str(where.partition)] = entry
    return topics


def _read_spans(topics: dict[str, dict[str, list[Any]]]) -> dict[TopicPartition, Span]:
    return {
        TopicPartition(topic, int(partition)): Span(*entry)
        for topic, partitions in topics.items()
        for partition, entry in partitions.items()
    }
