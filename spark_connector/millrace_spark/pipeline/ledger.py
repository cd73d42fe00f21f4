"""The ledger of an import directory: the imported offsets, and the open batch.

Owns the document, its transitions and its JSON. Knows no files and no brokers: `directory` stores
it, and `import_plan` plans the next batch.

    no batch ── begin(batch) ──► open batch ── commit() ──► no batch
                │                              │
                before any file                after all files are durable and the group's offsets
                                               are committed

                                 open batch ── abandon() ──► no batch
                                               │
                                               after all its files are deleted

Invariant: a file of `[start, end)` is in the directory, or being written, only if `imported` or the
open batch contains that range. So after a crash the ledger alone tells what to finish. Bounded:
`imported` has one interval for each partition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.records import TopicPartition
from millrace_spark.pipeline.errors import LedgerError
from millrace_spark.reading.ranges import OffsetRange

VERSION = 1


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets `[start_offset, end_offset)` of a partition of the topic with that id."""

    topic_id: str
    start_offset: int
    end_offset: int

    def __len__(self) -> int:
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class ImportBatch:
    """The offsets that are imported together: a span of each partition, and the ranges to read.

    The ranges cover the spans, in order and without overlap, except for records that are skipped as
    lost. One range is one task, and determines the names of its files.
    """

    number: int
    spans: Mapping[TopicPartition, Span]
    ranges: tuple[OffsetRange, ...]
    schema: str | None = None
    """Of the values, as in `FileLayout`; it may have more fields than that of earlier batches."""

    def __len__(self) -> int:
        return sum(map(len, self.ranges))


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The format and the columns of the files of a directory; only fields may be added."""

    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    schema: str | None = None
    """The schema of the values as Spark's JSON; None if values stay bytes."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state of an import directory. `directory_id` stays the same if the directory is moved."""

    directory_id: str
    group: str
    layout: FileLayout
    """Of the last committed batch."""
    imported: Mapping[TopicPartition, Span] = field(default_factory=dict)
    """The offsets of all committed batches."""
    batch_count: int = 0
    """Committed batches."""
    batch: ImportBatch | None = None
    """The open batch."""

    @property
    def batch_layout(self) -> FileLayout:
        """Of the open batch, and without one of the last committed batch."""
        return self.layout if self.batch is None else replace(self.layout, schema=self.batch.schema)

    def begin(self, batch: ImportBatch) -> Ledger:
        """The ledger to store before the first file of a batch."""
        if self.batch is not None or batch.number != self.batch_count + 1:
            raise LedgerError(f"batch {batch.number} cannot follow {self.batch_count}")
        return replace(self, batch=batch)

    def commit(self) -> Ledger:
        """The ledger to store when all files are durable and the group's offsets are committed."""
        if self.batch is None:
            raise LedgerError("no batch is open")
        imported = dict(self.imported)
        for where, span in self.batch.spans.items():
            before = imported.get(where, span)
            imported[where] = Span(span.topic_id, before.start_offset, span.end_offset)
        return replace(
            self,
            layout=self.batch_layout,
            imported=imported,
            batch_count=self.batch.number,
            batch=None,
        )

    def abandon(self) -> Ledger:
        """The ledger to store when no file of the open batch is left."""
        if self.batch is None:
            raise LedgerError("no batch is open")
        return replace(self, batch=None)

    def topics(self) -> set[str]:
        """The topics of the committed batches."""
        return {where.topic for where in self.imported}


def encode(ledger: Ledger) -> bytes:
    """The ledger as JSON. The keys are the format on disk; `landing` is the open batch."""
    document = {
        "version": VERSION,
        "directory_id": ledger.directory_id,
        "group": ledger.group,
        "format": ledger.layout.format,
        "partition_by": list(ledger.layout.partition_by),
        "schema": ledger.layout.schema,
        "landings": ledger.batch_count,
        "held": _spans(ledger.imported),
        "landing": None
        if ledger.batch is None
        else {
            "number": ledger.batch.number,
            "schema": ledger.batch.schema,
            "spans": _spans(ledger.batch.spans),
            "ranges": [
                [each.topic, each.topic_id, each.partition, each.start_offset, each.end_offset]
                for each in ledger.batch.ranges
            ],
        },
    }
    return json.dumps(document, indent=1).encode()


def decode(data: bytes) -> Ledger:
    """The ledger from its JSON. Raises `LedgerError` for other documents."""
    try:
        document = json.loads(data)
        if document["version"] != VERSION:
            raise LedgerError(f"is of version {document['version']}; this release reads {VERSION}")
        return _ledger(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LedgerError(f"is damaged ({type(error).__name__}: {error})") from None


def _ledger(document: dict[str, Any]) -> Ledger:
    batch = document["landing"]
    return Ledger(
        str(document["directory_id"]),
        str(document["group"]),
        FileLayout(document["format"], tuple(document["partition_by"]), document["schema"]),
        _read_spans(document["held"]),
        int(document["landings"]),
        None
        if batch is None
        else ImportBatch(
            int(batch["number"]),
            _read_spans(batch["spans"]),
            tuple(OffsetRange(*each) for each in batch["ranges"]),
            batch.get("schema", document["schema"]),
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
