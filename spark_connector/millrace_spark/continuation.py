"""Where a stream goes on, given what became of its topics since it stopped.

Owns the comparison of the offsets in a checkpoint with what the brokers have now: partitions that
are new, topics that are gone or are others of the same name, logs that end before the stream. Asks
nobody.

Every place that is not simply the old one is first written into a document, with no record read
from there, and only the next micro-batch reads on from it. So a micro-batch that is repeated after
a crash covers what it covered at first, whatever was added or removed in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millrace.records import TopicPartition
from millrace_spark.admission import Backlog
from millrace_spark.ranges import OffsetRange
from millrace_spark.stream_offsets import StreamOffsets


@dataclass(frozen=True, slots=True)
class Extents:
    """What the brokers have of the selected topics: the end of each log, and the topics' ids.

    `earliest` has the partitions for which it was asked.
    """

    latest: StreamOffsets
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where to go on, and what waits from there.

    `losses` are sentences about records that the stream has not read and cannot read any more.
    A partition in `jumped` goes on elsewhere than where the stream was; nothing of it is in
    `backlogs`.
    """

    offsets: StreamOffsets
    backlogs: Mapping[TopicPartition, Backlog]
    jumped: frozenset[TopicPartition]
    losses: tuple[str, ...]


def unknown_partitions(start: StreamOffsets, latest: StreamOffsets) -> list[TopicPartition]:
    """The partitions that a stream at `start` has not met, in order: new, or of a new topic."""
    known = set(start.same_incarnation(latest))
    return [where for where in sorted(latest.offsets) if where not in known]


def receded_partitions(start: StreamOffsets, latest: StreamOffsets) -> list[TopicPartition]:
    """The partitions whose logs end before the stream, in order.

    For a moment that is so after another broker has begun to lead.
    """
    return [
        where
        for where in start.same_incarnation(latest)
        if latest.offsets[where] < start.offsets[where]
    ]


def go_on(start: StreamOffsets, now: Extents) -> Continuation:
    """Where a stream at `start` goes on; `now.earliest` must have the partitions unknown to it.

    What is in `start` and not in `now` counts as lost: leave out what is not selected any more.
    """
    losses = [*_losses_of_topics(start, now.latest), *_losses_of_logs(start, now)]
    unknown = unknown_partitions(start, now.latest)
    receded = receded_partitions(start, now.latest)
    offsets: dict[TopicPartition, int] = {}
    backlogs: dict[TopicPartition, Backlog] = {}
    for where in start.same_incarnation(now.latest):
        offsets[where] = min(start.offsets[where], now.latest.offsets[where])
        if where not in receded:
            backlogs[where] = Backlog(start.offsets[where], now.latest.offsets[where])
    for where in unknown:
        offsets[where] = min(now.earliest[where], now.latest.offsets[where])
    return Continuation(
        StreamOffsets(offsets, now.latest.topic_ids),
        backlogs,
        frozenset((*unknown, *receded)),
        tuple(losses),
    )


def plan(
    start: StreamOffsets, end: StreamOffsets, now: Extents
) -> tuple[list[OffsetRange], tuple[str, ...]]:
    """What to read of the micro-batch from `start` to `end`, in order; and what is lost of it.

    A partition that is in one of the two only, or goes backwards, or belongs to another topic of
    the same name, jumps in this batch and is read from the next one on. `now.earliest` must have
    the partitions of `now.latest`.
    """
    first = {
        where: start.offsets[where]
        for where in start.same_incarnation(end)
        if start.offsets[where] < end.offsets[where]
    }
    there = {
        where: end_offset for where, end_offset in now.latest.offsets.items() if where in first
    }
    planned = StreamOffsets(first, {**start.topic_ids, **end.topic_ids})
    going = go_on(planned, Extents(StreamOffsets(there, now.latest.topic_ids), now.earliest))
    ranges: list[OffsetRange] = []
    losses = list(going.losses)
    for where, backlog in going.backlogs.items():
        earliest, end_offset = now.earliest[where], end.offsets[where]
        if backlog.start_offset < earliest:
            losses.append(
                f"{where}: records [{backlog.start_offset}, {min(earliest, end_offset)}) are gone: "
                "retention removed them before the stream read them"
            )
        begin = max(backlog.start_offset, earliest)
        if begin < end_offset:
            topic_id = now.latest.topic_ids[where.topic]
            ranges.append(OffsetRange(where.topic, topic_id, where.partition, begin, end_offset))
    return ranges, tuple(losses)


def _losses_of_topics(start: StreamOffsets, latest: StreamOffsets) -> Iterable[str]:
    topics = {where.topic for where in start.offsets}
    remaining = {where.topic for where in latest.offsets}
    for topic in sorted(topics):
        old_id, new_id = start.topic_ids.get(topic), latest.topic_ids.get(topic)
        if topic not in remaining:
            yield f"the topic {topic} was deleted, and what the stream had not read of it is gone"
        elif old_id is not None and new_id is not None and old_id != new_id:
            yield (
                f"the topic {topic} was deleted and created again, and what the stream had not "
                "read of the old one is gone"
            )
        else:
            for where in sorted(start.offsets.keys() - latest.offsets.keys()):
                if where.topic == topic:
                    yield f"{where}: the partition is not there any more"


def _losses_of_logs(start: StreamOffsets, now: Extents) -> Iterable[str]:
    for where in receded_partitions(start, now.latest):
        yield (
            f"{where}: the log ends at {now.latest.offsets[where]}, before the stream, which has "
            f"read up to {start.offsets[where]}: the log was cut back, and what was written there "
            "since is not what the stream has read"
        )
    known = {where.topic for where in start.same_incarnation(now.latest)}
    for where in unknown_partitions(start, now.latest):
        earliest = now.earliest[where]
        if where.topic in known and earliest > 0:
            yield (
                f"{where}: records [0, {earliest}) of this new partition are gone: retention "
                "removed them before the stream met it"
            )
