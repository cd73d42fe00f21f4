"""What lands next: from the ledger, the group's offsets and what the logs hold.

Owns the decision where each partition goes on, and every refusal that keeps a record from landing
twice or not at all. Asks nobody.

| the directory holds   | the group has committed          | goes on                           |
|-----------------------|----------------------------------|-----------------------------------|
| the partition, to end | for this directory, or nothing   | at end: the ledger is the truth   |
| the partition, to end | end, whoever it was              | at end                            |
| the partition, to end | another offset, by somebody else | refused: twice, or a gap          |
| nothing of it         | for another directory            | refused: half here and half there |
| nothing of it         | an offset, as any reader         | at that offset                    |
| nothing of it         | nothing                          | at the edge asked for; at the     |
|                       |                                  | earliest if it holds the topic    |
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
    """What the log of a partition holds: `[earliest, latest)` of this incarnation of its topic."""

    topic_id: str
    earliest: int
    latest: int


class Committed(NamedTuple):
    """An offset that the group has committed, and the text beside it."""

    offset: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller decides about a landing."""

    from_latest: bool = False
    """Begin what was never imported at its end instead of at its first record."""
    skip_lost: bool = False
    """Go on behind records that retention has removed."""
    records_max: int | None = None
    """Bound of the landing, in offsets."""


_NOTE = "millrace import "


def note_of(directory_id: str, path: str) -> str:
    """The text beside the offsets that an import commits, for `spans` to know them again."""
    return f"{_NOTE}{directory_id} {path[-200:]}"


def spans(
    ledger: Ledger,
    extents: Mapping[TopicPartition, Extent],
    committed: Mapping[TopicPartition, Committed],
    wishes: Wishes,
) -> dict[TopicPartition, Span]:
    """Where each partition goes from and to; empty where there is nothing new.

    Raises `ImportRefused` where records would land twice or be left out, and `DataLost` for those
    that are gone, unless they are to be skipped.
    """
    found = {
        where: Span(
            extent.topic_id,
            _start(ledger, where, extent, committed.get(where), wishes),
            extent.latest,
        )
        for where, extent in sorted(extents.items())
    }
    return found if wishes.records_max is None else _shared_out(found, wishes.records_max)


def require_not_elsewhere(ledger: Ledger, where: TopicPartition, committed: Committed) -> None:
    """Raises `ImportRefused` for a group that is noted to import into another directory."""
    if not committed.note.startswith(_NOTE):
        return
    directory_id, _, path = committed.note.removeprefix(_NOTE).partition(" ")
    if directory_id != ledger.directory_id:
        raise ImportRefused(
            f"{where}: group {ledger.group} imports into {path or 'another directory'}, so the "
            "records would be half there and half here. Give --to that directory, or --group "
            f"another name; or forget it with `millrace group delete {ledger.group}`"
        )


def is_news(ledger: Ledger, found: Mapping[TopicPartition, Span]) -> bool:
    """Whether there is anything to land, or the first offset of a partition to be noted."""
    return any(len(span) or where not in ledger.held for where, span in found.items())


def _start(
    ledger: Ledger,
    where: TopicPartition,
    extent: Extent,
    committed: Committed | None,
    wishes: Wishes,
) -> int:
    held = ledger.held.get(where)
    if held is not None:
        _require_same_topic(where, held, extent)
        _require_same_offset(ledger, where, held, committed)
        start = held.end_offset
    elif committed is not None:
        require_not_elsewhere(ledger, where, committed)
        start = committed.offset
    elif wishes.from_latest and where.topic not in ledger.topics():
        start = extent.latest
    else:
        start = extent.earliest
    if start > extent.latest:
        raise ImportRefused(
            f"{where}: the import stopped at offset {start}, and the log ends at {extent.latest}: "
            "records were lost at its end, or the group's offset is not of this log. Import into "
            "another directory, with another --group"
        )
    if start >= extent.earliest:
        return start
    if wishes.skip_lost:
        return extent.earliest
    raise DataLost(
        f"{where}: records [{start}, {extent.earliest}) are gone, the log holds "
        f"[{extent.earliest}, {extent.latest}): retention removed them before they were imported. "
        "To go on without them: --skip-lost"
    )


def _require_same_topic(where: TopicPartition, held: Span, extent: Extent) -> None:
    if held.topic_id != extent.topic_id:
        raise ImportRefused(
            f"{where}: the topic was deleted and created again since the directory took from it; "
            "its offsets begin anew. Import into another directory, with another --group"
        )


def _require_same_offset(
    ledger: Ledger, where: TopicPartition, held: Span, committed: Committed | None
) -> None:
    if committed is None:
        return
    require_not_elsewhere(ledger, where, committed)
    if committed.offset == held.end_offset or committed.note.startswith(_NOTE):
        return
    what = (
        f"[{committed.offset}, {held.end_offset}) would land twice"
        if committed.offset < held.end_offset
        else f"[{held.end_offset}, {committed.offset}) would be left out"
    )
    raise ImportRefused(
        f"{where}: the directory holds records up to offset {held.end_offset}, and group "
        f"{ledger.group} was taken to {committed.offset}: {what}. Take it back with "
        f"`millrace group reset {ledger.group} --topic {where.topic}:{where.partition} "
        f"--to-offset {held.end_offset}`, or import into another directory with another --group"
    )


def _shared_out(found: dict[TopicPartition, Span], records_max: int) -> dict[TopicPartition, Span]:
    """The spans cut to `records_max` offsets in all; the smaller ones are whole."""
    cut = dict(found)
    left = records_max
    by_length = sorted(found, key=lambda where: len(found[where]))
    for index, where in enumerate(by_length):
        span = found[where]
        # The last ones get what the division left over.
        share = min(len(span), left // (len(by_length) - index))
        left -= share
        cut[where] = Span(span.topic_id, span.start_offset, span.start_offset + share)
    return cut
