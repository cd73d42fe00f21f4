"""Validation of a stream's offsets against the logs that the brokers have.

Owns the comparison of a checkpoint with the current topics. It finds new partitions, deleted
topics, topics that were created again, and logs that end before the stream. Asks no broker.

An offset that is not the one in the checkpoint first becomes the end of an empty micro-batch. The
next micro-batch reads from there. So a micro-batch that Spark repeats after a crash covers the
same records, whatever was added or removed in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millrace.records import TopicPartition
from millrace_spark.reading.ranges import OffsetRange
from millrace_spark.streaming.rate_limit import Backlog
from millrace_spark.streaming.stream_offsets import StreamOffsets


@dataclass(frozen=True, slots=True)
class Extents:
    """The logs of the selected topics: their end offsets, and the topics' ids.

    `earliest` has the start offsets of the partitions that the caller asked about.
    """

    latest: StreamOffsets
    earliest: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ValidatedOffsets:
    """Offsets from which the stream can read, and the records that follow them.

    `losses` describes records that the stream has not read and can no longer read. A partition in
    `reset` continues at another offset than the checkpoint's; `backlogs` has nothing of it.
    """

    offsets: StreamOffsets
    backlogs: Mapping[TopicPartition, Backlog]
    reset: frozenset[TopicPartition]
    losses: tuple[str, ...]


def new_partitions(start: StreamOffsets, latest: StreamOffsets) -> list[TopicPartition]:
    """The partitions that are not in `start`, in order; those of a topic created again included."""
    known = set(start.same_incarnation(latest))
    return [where for where in sorted(latest.offsets) if where not in known]


def truncated_partitions(start: StreamOffsets, latest: StreamOffsets) -> list[TopicPartition]:
    """The partitions whose logs end before the stream, in order.

    A new leader reports such an end for a moment, until it knows the high watermark.
    """
    return [
        where
        for where in start.same_incarnation(latest)
        if latest.offsets[where] < start.offsets[where]
    ]


def validate(start: StreamOffsets, now: Extents) -> ValidatedOffsets:
    """The offsets where a stream at `start` continues.

    `now.earliest` must have the new partitions. A partition of `start` that `now` lacks counts as
    lost, so the caller leaves out partitions that are no longer selected.
    """
    losses = [*_topic_losses(start, now.latest), *_log_losses(start, now)]
    new = new_partitions(start, now.latest)
    truncated = truncated_partitions(start, now.latest)
    offsets: dict[TopicPartition, int] = {}
    backlogs: dict[TopicPartition, Backlog] = {}
    for where in start.same_incarnation(now.latest):
        offsets[where] = min(start.offsets[where], now.latest.offsets[where])
        if where not in truncated:
            backlogs[where] = Backlog(start.offsets[where], now.latest.offsets[where])
    for where in new:
        offsets[where] = min(now.earliest[where], now.latest.offsets[where])
    return ValidatedOffsets(
        StreamOffsets(offsets, now.latest.topic_ids),
        backlogs,
        frozenset((*new, *truncated)),
        tuple(losses),
    )


def plan_micro_batch(
    start: StreamOffsets, end: StreamOffsets, now: Extents
) -> tuple[list[OffsetRange], tuple[str, ...]]:
    """The ranges of the micro-batch from `start` to `end`, in order, and its losses.

    The micro-batch reads nothing of a partition that is in one of the two only, goes backwards, or
    belongs to another topic of the same name. `now.earliest` must have the partitions of
    `now.latest`.
    """
    first = {
        where: start.offsets[where]
        for where in start.same_incarnation(end)
        if start.offsets[where] < end.offsets[where]
    }
    present = {
        where: end_offset for where, end_offset in now.latest.offsets.items() if where in first
    }
    planned = StreamOffsets(first, {**start.topic_ids, **end.topic_ids})
    found = validate(planned, Extents(StreamOffsets(present, now.latest.topic_ids), now.earliest))
    ranges: list[OffsetRange] = []
    losses = list(found.losses)
    for where, backlog in found.backlogs.items():
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


def _topic_losses(start: StreamOffsets, latest: StreamOffsets) -> Iterable[str]:
    topics = {where.topic for where in start.offsets}
    present = {where.topic for where in latest.offsets}
    for topic in sorted(topics):
        old_id, new_id = start.topic_ids.get(topic), latest.topic_ids.get(topic)
        if topic not in present:
            yield f"the topic {topic} was deleted; records that the stream had not read are gone"
        elif old_id is not None and new_id is not None and old_id != new_id:
            yield (
                f"the topic {topic} was deleted and created again; records of the old topic that "
                "the stream had not read are gone"
            )
        else:
            for where in sorted(start.offsets.keys() - latest.offsets.keys()):
                if where.topic == topic:
                    yield f"{where}: the partition no longer exists"


def _log_losses(start: StreamOffsets, now: Extents) -> Iterable[str]:
    for where in truncated_partitions(start, now.latest):
        yield (
            f"{where}: the log ends at {now.latest.offsets[where]}, and the stream has read up to "
            f"{start.offsets[where]}: the log was truncated, and records written there since are "
            "not those that the stream has read"
        )
    known = {where.topic for where in start.same_incarnation(now.latest)}
    for where in new_partitions(start, now.latest):
        earliest = now.earliest[where]
        if where.topic in known and earliest > 0:
            yield (
                f"{where}: records [0, {earliest}) of this new partition are gone: retention "
                "removed them before the stream read them"
            )
