"""Offset ranges: what one task reads, and how bounds become ranges.

Owns the arithmetic of bounds: clamping, and what counts as lost. Asks nobody; `planner` brings
what the brokers said. Cutting ranges into smaller ones is `pieces`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.records import TopicPartition
from millrace_spark.bounds import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Bound,
    Edge,
    named_partitions,
    option_of,
)
from millrace_spark.errors import DataLost, OptionError
from millrace_spark.options import ReadOptions


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records `[start_offset, end_offset)` of a partition of one incarnation of a topic.

    `0 <= start_offset < end_offset`. A topic that is deleted and created again has another
    `topic_id`.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def where(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.where} [{self.start_offset}, {self.end_offset})"


@dataclass(frozen=True, slots=True)
class LogExtent:
    """What a partition holds, `[earliest, latest)`, and what was found for bounds that are times.

    A time found is an offset, or -1 when no record is that late; None when the bound names no
    time for the partition.
    """

    topic_id: str
    earliest: int
    latest: int
    start_found: int | None = None
    end_found: int | None = None


def plan_ranges(
    extents: Mapping[TopicPartition, LogExtent], options: ReadOptions
) -> list[OffsetRange]:
    """The range to read of each partition, in order of topic and partition; none is empty.

    Raises `DataLost` for offsets that were asked for by number and are not in the log, unless
    they are to be skipped, and `OptionError` for a start at a time that no record matches, where
    that is not allowed.
    """
    ranges: list[OffsetRange] = []
    for where in sorted(extents):
        extent = extents[where]
        first = start_of(where, extent, options)
        last = _resolve(options.end, where, extent.end_found, extent, Edge.LATEST)
        if options.fail_on_data_loss:
            _require(where, extent, first, last, is_end_named=isinstance(options.end, AtOffsets))
        first = min(max(first, extent.earliest), extent.latest)
        last = min(last, extent.latest)
        if first < last:
            ranges.append(OffsetRange(where.topic, extent.topic_id, where.partition, first, last))
    return ranges


def start_of(where: TopicPartition, extent: LogExtent, options: ReadOptions) -> int:
    """The offset where a read of a partition begins; it may lie outside of the log.

    Raises `OptionError` where no record matches a time that must be matched.
    """
    if extent.start_found is not None and extent.start_found < 0 and options.start_must_match:
        raise OptionError(
            option_of(options.start, is_start=True),
            f"no record of {where} is that late, which startingOffsetsByTimestampStrategy=error "
            "makes an error; with latest such a partition has no records to read yet",
        )
    return _resolve(options.start, where, extent.start_found, extent, Edge.EARLIEST)


def check_named_partitions(partitions: Mapping[str, int], options: ReadOptions) -> None:
    """Raises `OptionError` for bounds that name partitions which the topics (name: count) lack."""
    for bound, is_start in ((options.start, True), (options.end, False)):
        for topic, partition, _ in named_partitions(bound):
            check_partition(
                option_of(bound, is_start=is_start), topic, partition, partitions.get(topic, 0)
            )


def check_partition(option: str, topic: str, partition: int, count: int) -> None:
    """Raises `OptionError` for a partition that a topic of so many does not have."""
    if partition >= count:
        has = f"{topic} has {count}, counted from 0" if count else f"there is no topic {topic}"
        raise OptionError(option, f"there is no {topic}-{partition}; {has}")


def _resolve(
    bound: Bound, where: TopicPartition, found: int | None, extent: LogExtent, default: Edge
) -> int:
    if isinstance(bound, AtTime | AtTimes) and found is not None:
        # A record that came after `latest` was asked for is not part of the read.
        return extent.latest if found < 0 else min(found, extent.latest)
    if isinstance(bound, AtOffsets):
        named = bound.offsets.get(where.topic, {}).get(where.partition)
        if named == OFFSET_EARLIEST:
            return extent.earliest
        if named == OFFSET_LATEST:
            return extent.latest
        if named is not None:
            return named
    edge = bound if isinstance(bound, Edge) else default
    return extent.earliest if edge is Edge.EARLIEST else extent.latest


def _require(
    where: TopicPartition, extent: LogExtent, first: int, last: int, *, is_end_named: bool
) -> None:
    """Raises `DataLost` unless the log holds `[first, last)`."""
    holds = f"the log holds [{extent.earliest}, {extent.latest})"
    if first < extent.earliest and first < last:
        raise DataLost(
            f"{where}: records [{first}, {min(extent.earliest, last)}) are gone, {holds}: "
            "retention removed them. Start later, or set failOnDataLoss to false"
        )
    if first > extent.latest or (is_end_named and last > extent.latest):
        raise DataLost(
            f"{where}: records [{extent.latest}, {max(first, last)}) are not there, "
            f"{holds}: they were not written yet, or the topic was created again. Give offsets "
            "in the log, or set failOnDataLoss to false"
        )
