"""Planning on the driver: asks the brokers about the topics, and plans the range of each task.

Owns the requests. `ranges` computes ranges from the answers, and `pieces` cuts them into tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace

from millrace.admin import TopicDescription
from millrace.errors import OffsetOutOfRange, UnknownTopicOrPartition
from millrace.records import TopicPartition
from millrace.sync import Admin
from millrace_spark.options.bounds import AtTime, AtTimes, Bound, named_partitions
from millrace_spark.options.read_options import ReadOptions
from millrace_spark.options.selection import Assign, Subscribe, SubscribePattern
from millrace_spark.reading.filter_pushdown import Condition, earliest_ms, restrict, selects
from millrace_spark.reading.pieces import Piece, at_least, at_most, joined, target_bytes
from millrace_spark.reading.ranges import (
    LogExtent,
    OffsetRange,
    check_named_partitions,
    check_partition,
    plan_ranges,
)
from millrace_spark.retry import start_admin

CHUNKS_PER_PIECE = 8
"""The broker cuts ranges into chunks, which are joined to pieces. Sizes of pieces differ by one
chunk at most."""
CHUNKS_MAX = 20_000
"""Chunks of one read. A larger read has larger chunks."""
_WHOLE = 2**62
"""More bytes than any range has: the range is one piece."""
_ATTEMPTS = 3


def plan(options: ReadOptions, conditions: Sequence[Condition] = ()) -> list[OffsetRange]:
    """The range of each task of a read, restricted by the conditions.

    Raises `ConnectionFailed`, `UnknownTopicOrPartition`, `DataLost` and `OptionError`.
    """
    with closing(
        start_admin(options.servers, options.credentials, deadline_ms=options.deadline_ms)
    ) as admin:
        attempts_left = _ATTEMPTS
        while True:
            topic_ids = {
                where: topic_id
                for where, topic_id in select(admin, options).items()
                if selects(where, conditions)
            }
            ranges = plan_ranges(extents(admin, topic_ids, options), options)
            ranges = _restrict(admin, ranges, conditions)
            attempts_left -= 1
            try:
                return cut(admin, ranges, options)
            except OffsetOutOfRange:
                # Retention removed planned records; the next attempt plans without them.
                if not attempts_left:
                    raise


def select(admin: Admin, options: ReadOptions) -> dict[TopicPartition, str]:
    """The partitions that a read selects, each with the id of its topic.

    Raises `UnknownTopicOrPartition` for an unknown topic in the options, and `OptionError` for an
    unknown partition.
    """
    topics = _topics(admin, options)
    counts = {topic.name: len(topic.partitions) for topic in topics}
    check_named_partitions(counts, options)
    if isinstance(options.selection, Assign):
        for name, partitions in options.selection.partitions.items():
            check_partition("assign", name, max(partitions), counts[name])
    return {
        TopicPartition(topic.name, partition.partition): str(topic.topic_id)
        for topic in topics
        for partition in topic.partitions
        if options.selection.selects(topic.name, partition.partition)
    }


def extents(
    admin: Admin, topic_ids: dict[TopicPartition, str], options: ReadOptions
) -> dict[TopicPartition, LogExtent]:
    """The logs of the partitions, and the offsets of the times that bound the read."""
    earliest = admin.list_offsets(dict.fromkeys(topic_ids, "earliest"))
    latest = admin.list_offsets(dict.fromkeys(topic_ids, "latest"))
    start_found = _find(admin, topic_ids, options.start)
    end_found = _find(admin, topic_ids, options.end)
    return {
        where: LogExtent(
            topic_id,
            earliest[where].offset,
            latest[where].offset,
            start_found.get(where),
            end_found.get(where),
        )
        for where, topic_id in topic_ids.items()
    }


def cut(admin: Admin, ranges: list[OffsetRange], options: ReadOptions) -> list[OffsetRange]:
    """The ranges in pieces, whose size and number follow the options.

    Raises `OptionError` for too many pieces, and `OffsetOutOfRange` for offsets that are no longer
    in the log.
    """
    sized = _sized(admin, ranges, piece_bytes=_WHOLE)
    sizes = [sum(piece.size_bytes for piece in pieces) for pieces in sized]
    target = target_bytes(sizes, options)
    chunk_bytes = max(1, target // CHUNKS_PER_PIECE, sum(sizes) // CHUNKS_MAX)
    large = [whole for whole, size in zip(ranges, sizes, strict=True) if size > target]
    chunks = dict(zip(large, _sized(admin, large, piece_bytes=chunk_bytes), strict=True))
    pieces = [
        piece
        for whole, size in zip(ranges, sizes, strict=True)
        for piece in joined(chunks.get(whole, [Piece(whole, size)]), target)
    ]
    ranges = at_least(pieces, options.min_partitions or 1)
    if options.max_records_per_partition is not None:
        ranges = at_most(ranges, options.max_records_per_partition)
    return ranges


def _restrict(
    admin: Admin, ranges: list[OffsetRange], conditions: Sequence[Condition]
) -> list[OffsetRange]:
    ranges = restrict(ranges, conditions)
    timestamp_ms = earliest_ms(conditions)
    if timestamp_ms is None:
        return ranges
    # This request follows that for the ends, so a time without an offset is behind the ranges.
    found = _find(admin, [whole.where for whole in ranges], AtTime(timestamp_ms))
    return [
        replace(whole, start_offset=max(whole.start_offset, found[whole.where]))
        for whole in ranges
        if 0 <= found[whole.where] < whole.end_offset
    ]


def _sized(admin: Admin, ranges: list[OffsetRange], *, piece_bytes: int) -> list[list[Piece]]:
    """The pieces of each range, cut by the brokers."""
    asked: dict[TopicPartition | tuple[str, int], tuple[int, int]] = {
        whole.where: (whole.start_offset, whole.end_offset) for whole in ranges
    }
    answers = admin.split_ranges(asked, piece_bytes=piece_bytes)
    return [
        [
            Piece(
                replace(whole, start_offset=found.start_offset, end_offset=found.end_offset),
                found.size_bytes,
            )
            for found in answers[whole.where]
        ]
        for whole in ranges
    ]


def _topics(admin: Admin, options: ReadOptions) -> list[TopicDescription]:
    selection = options.selection
    if isinstance(selection, SubscribePattern):
        names = selection.topics_of(admin.list_topics())
        # The topic may have been deleted since it was listed.
        return [
            outcome.unwrap()
            for outcome in admin.describe_topics(names)
            if not isinstance(outcome.error, UnknownTopicOrPartition)
        ]
    names = selection.topics if isinstance(selection, Subscribe) else tuple(selection.partitions)
    return [outcome.unwrap() for outcome in admin.describe_topics(names)]


def _find(
    admin: Admin, wheres: Iterable[TopicPartition], bound: Bound
) -> dict[TopicPartition, int]:
    """The offset of the first record at or after a bound that is a time; -1 for no record."""
    times: dict[TopicPartition | tuple[str, int], str | int] = {}
    if isinstance(bound, AtTime):
        times.update(dict.fromkeys(wheres, bound.timestamp_ms))
    elif isinstance(bound, AtTimes):
        for topic, partition, timestamp_ms in named_partitions(bound):
            times[topic, partition] = timestamp_ms
    answers = admin.list_offsets(times)
    return {where: answer.offset for where, answer in answers.items()}
