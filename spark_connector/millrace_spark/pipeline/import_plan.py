"""The plan of an import: the spans of the next batch, from ledger, group and logs.

Owns the start offset of each partition, and every refusal that prevents a record from being
imported twice or not at all. Asks no broker.

| the directory has     | the group has committed          | the import continues              |
|-----------------------|----------------------------------|-----------------------------------|
| the partition, to end | for this directory, or nothing   | at end: the ledger decides        |
| the partition, to end | end, by any client               | at end                            |
| the partition, to end | another offset, by a client      | refused: duplicates, or a gap     |
| no record of it       | for another directory            | refused: a topic in two parts     |
| no record of it       | an offset, by any client         | at that offset                    |
| no record of it       | nothing                          | at the requested end of the log;  |
|                       |                                  | at the earliest offset, if the    |
|                       |                                  | directory has the topic           |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millrace.records import TopicPartition
from millrace_spark.errors import DataLost
from millrace_spark.pipeline.errors import ImportRefused
from millrace_spark.pipeline.ledger import Ledger, Span


class Extent(NamedTuple):
    """The log of a partition: `[earliest, latest)` of the topic with that id."""

    topic_id: str
    earliest: int
    latest: int


class Committed(NamedTuple):
    """An offset that the group has committed, and its metadata."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class ImportPolicy:
    """The caller's choices for a batch."""

    from_latest: bool = False
    """Start topics that are not imported yet at the end of their logs, not at the beginning."""
    skip_lost: bool = False
    """Skip records that retention has removed."""
    records_max: int | None = None
    """Most offsets of the batch."""


_METADATA = "millrace import "


def commit_metadata(directory_id: str, path: str) -> str:
    """The metadata of the offsets that an import commits, by which `spans` recognises them."""
    return f"{_METADATA}{directory_id} {path[-200:]}"


def spans(
    ledger: Ledger,
    extents: Mapping[TopicPartition, Extent],
    committed: Mapping[TopicPartition, Committed],
    policy: ImportPolicy,
) -> dict[TopicPartition, Span]:
    """The span of each partition in the next batch; empty without new records.

    Raises `ImportRefused` if records would be imported twice or left out, and `DataLost` for
    records that are gone, unless the policy skips them.
    """
    found = {
        where: Span(
            extent.topic_id,
            _start(ledger, where, extent, committed.get(where), policy),
            extent.latest,
        )
        for where, extent in sorted(extents.items())
    }
    return found if policy.records_max is None else _limited(found, policy.records_max)


def require_own_group(ledger: Ledger, where: TopicPartition, committed: Committed) -> None:
    """Raises `ImportRefused` if the group imports into another directory."""
    if not committed.metadata.startswith(_METADATA):
        return
    directory_id, _, path = committed.metadata.removeprefix(_METADATA).partition(" ")
    if directory_id != ledger.directory_id:
        raise ImportRefused(
            f"{where}: group {ledger.group} imports into {path or 'another directory'}. Give that "
            "directory with --to, or another group with --group, or delete the group with "
            f"`millrace group delete {ledger.group}`"
        )


def has_new_offsets(ledger: Ledger, found: Mapping[TopicPartition, Span]) -> bool:
    """Whether there are new records, or a new partition, whose start offset must be committed."""
    return any(len(span) or where not in ledger.imported for where, span in found.items())


def _start(
    ledger: Ledger,
    where: TopicPartition,
    extent: Extent,
    committed: Committed | None,
    policy: ImportPolicy,
) -> int:
    imported = ledger.imported.get(where)
    if imported is not None:
        _require_same_topic(where, imported, extent)
        _require_same_offset(ledger, where, imported, committed)
        start = imported.end_offset
    elif committed is not None:
        require_own_group(ledger, where, committed)
        start = committed.offset
    elif policy.from_latest and where.topic not in ledger.topics():
        start = extent.latest
    else:
        start = extent.earliest
    if start > extent.latest:
        raise ImportRefused(
            f"{where}: the import stopped at offset {start}, and the log ends at {extent.latest}: "
            "the end of the log was lost, or the group's offset is of another log. Import into "
            "another directory, with another --group"
        )
    if start >= extent.earliest:
        return start
    if policy.skip_lost:
        return extent.earliest
    raise DataLost(
        f"{where}: records [{start}, {extent.earliest}) are gone, the log holds "
        f"[{extent.earliest}, {extent.latest}): retention removed them before they were imported. "
        "To continue without them, set --skip-lost"
    )


def _require_same_topic(where: TopicPartition, imported: Span, extent: Extent) -> None:
    if imported.topic_id != extent.topic_id:
        raise ImportRefused(
            f"{where}: the topic was deleted and created again since the last import, so its "
            "offsets restart. Import into another directory, with another --group"
        )


def _require_same_offset(
    ledger: Ledger, where: TopicPartition, imported: Span, committed: Committed | None
) -> None:
    if committed is None:
        return
    require_own_group(ledger, where, committed)
    if committed.offset == imported.end_offset or committed.metadata.startswith(_METADATA):
        return
    consequence = (
        f"records [{committed.offset}, {imported.end_offset}) would be imported twice"
        if committed.offset < imported.end_offset
        else f"records [{imported.end_offset}, {committed.offset}) would be left out"
    )
    raise ImportRefused(
        f"{where}: the directory has records up to offset {imported.end_offset}, and group "
        f"{ledger.group} was moved to {committed.offset}: {consequence}. Reset it with "
        f"`millrace group reset {ledger.group} --topic {where.topic}:{where.partition} "
        f"--to-offset {imported.end_offset}`, or import into another directory with another --group"
    )


def _limited(found: dict[TopicPartition, Span], records_max: int) -> dict[TopicPartition, Span]:
    """The spans, cut to `records_max` offsets in all; the smallest stay whole."""
    cut = dict(found)
    remaining = records_max
    by_length = sorted(found, key=lambda where: len(found[where]))
    for index, where in enumerate(by_length):
        span = found[where]
        # The last spans get the remainder of the division.
        share = min(len(span), remaining // (len(by_length) - index))
        remaining -= share
        cut[where] = Span(span.topic_id, span.start_offset, span.start_offset + share)
    return cut
