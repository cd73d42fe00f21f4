"""Offset ranges, of which one task reads one, and their computation from bounds.

Owns the arithmetic of bounds: clamping, and which records count as lost. Asks no broker: `planner`
passes the brokers' answers. `pieces` cuts ranges into smaller ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.records import TopicPartition
from millrace_spark.errors import DataLost, OptionError
from millrace_spark.options.bounds import (
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
from millrace_spark.options.read_options import ReadOptions


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records `[start_offset, end_offset)` of a partition of the topic with that id.

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
    """The log of a partition, `[earliest, latest)`, and the offsets of bounds that are times.

    `start_found` and `end_found` are offsets, or -1 when no record is that late; None when the
    bound names no time for the partition.
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

    Raises `DataLost` for requested offsets that are not in the log, unless the options skip lost
    records. Raises `OptionError` for a start time that no record matches, if it must match.
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
    """The offset where the read of a partition begins; it may be outside of the log.

    Raises `OptionError` for a start time that no record matches, if it must match.
    """
    if extent.start_found is not None and extent.start_found < 0 and options.start_must_match:
        raise OptionError(
            option_of(options.start, is_start=True),
            f"no record of {where} is that late, which startingOffsetsByTimestampStrategy=error "
            "rejects; with latest, the read of such a partition is empty",
        )
    return _resolve(options.start, where, extent.start_found, extent, Edge.EARLIEST)


def check_named_partitions(partitions: Mapping[str, int], options: ReadOptions) -> None:
    """Raises `OptionError` for bounds of partitions that the topics (name: count) lack."""
    for bound, is_start in ((options.start, True), (options.end, False)):
        for topic, partition, _ in named_partitions(bound):
            check_partition(
                option_of(bound, is_start=is_start), topic, partition, partitions.get(topic, 0)
            )


def check_partition(option: str, topic: str, partition: int, count: int) -> None:
    """Raises `OptionError` for a partition that is not below the topic's count."""
    if partition >= count:
        has = f"{topic} has {count}, counted from 0" if count else f"there is no topic {topic}"
        raise OptionError(option, f"there is no {topic}-{partition}; {has}")


def _resolve(
    bound: Bound, where: TopicPartition, found: int | None, extent: LogExtent, default: Edge
) -> int:
    if isinstance(bound, AtTime | AtTimes) and found is not None:
        # The offset may be of a record that was appended after `latest` was fetched.
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
            f"{where}: records [{extent.latest}, {max(first, last)}) do not exist, "
            f"{holds}: they are not written yet, or the topic was created again. Give offsets "
            "in the log, or set failOnDataLoss to false"
        )
