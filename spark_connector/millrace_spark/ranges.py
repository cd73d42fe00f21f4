"""Offset ranges: what one task reads, and how bounds become ranges.

Owns the arithmetic of planning: clamping, what counts as lost, and even splitting. Asks nobody;
`planner` brings what the brokers said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from millrace.records import TopicPartition
from millrace_spark.bounds import AtOffsets, AtTime, Bound, Edge
from millrace_spark.errors import DataLost, OptionError
from millrace_spark.options import OnDataLoss

RANGES_MAX = 100_000
"""Spark partitions of one read; each is a task, and the driver holds them all."""


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

    A time found is an offset, or -1 when no record is that late; None when the bound is no time.
    """

    topic_id: str
    earliest: int
    latest: int
    start_found: int | None = None
    end_found: int | None = None


def plan_ranges(
    extents: Mapping[TopicPartition, LogExtent],
    *,
    start: Bound,
    end: Bound,
    on_data_loss: OnDataLoss,
    max_offsets_per_partition: int | None,
) -> list[OffsetRange]:
    """The ranges to read, in order of topic, partition and offset; empty ones are left out.

    Raises `DataLost` for offsets that were asked for by number and are not in the log, unless
    they are to be skipped, and `OptionError` when a split makes more than `RANGES_MAX` ranges.
    """
    ranges: list[OffsetRange] = []
    for where in sorted(extents):
        extent = extents[where]
        first = _resolve(start, where, extent.start_found, extent, Edge.EARLIEST)
        last = _resolve(end, where, extent.end_found, extent, Edge.LATEST)
        if on_data_loss == "fail":
            _require(where, extent, first, last, is_end_named=isinstance(end, AtOffsets))
        first = min(max(first, extent.earliest), extent.latest)
        last = min(last, extent.latest)
        if first < last:
            whole = OffsetRange(where.topic, extent.topic_id, where.partition, first, last)
            _require_bound(len(ranges), whole, max_offsets_per_partition)
            ranges += split(whole, max_offsets_per_partition)
    return ranges


def split(whole: OffsetRange, max_offsets: int | None) -> Iterator[OffsetRange]:
    """The range in pieces of at most `max_offsets`, whose lengths differ by at most 1."""
    count = _pieces(whole, max_offsets)
    for index in range(count):
        yield OffsetRange(
            whole.topic,
            whole.topic_id,
            whole.partition,
            whole.start_offset + len(whole) * index // count,
            whole.start_offset + len(whole) * (index + 1) // count,
        )


def check_named_partitions(
    bounds: Sequence[tuple[str, Bound]], partitions: Mapping[str, int]
) -> None:
    """Raises `OptionError` for offsets of partitions that the topics (name: count) lack."""
    for option, bound in bounds:
        if isinstance(bound, AtOffsets):
            for topic, offsets in bound.offsets.items():
                for partition in offsets:
                    if partition >= partitions[topic]:
                        raise OptionError(
                            option,
                            f"there is no {topic}-{partition}; {topic} has "
                            f"{partitions[topic]} partitions, counted from 0",
                        )


def _pieces(whole: OffsetRange, max_offsets: int | None) -> int:
    return 1 if max_offsets is None else -(-len(whole) // max_offsets)


def _resolve(
    bound: Bound, where: TopicPartition, found: int | None, extent: LogExtent, default: Edge
) -> int:
    if isinstance(bound, AtTime):
        # A record that came after `latest` was asked for is not part of the read.
        return extent.latest if found is None or found < 0 else min(found, extent.latest)
    if isinstance(bound, AtOffsets):
        named = bound.offsets.get(where.topic, {}).get(where.partition)
        if named is not None:
            return named
        bound = default
    return extent.earliest if bound is Edge.EARLIEST else extent.latest


def _require(
    where: TopicPartition, extent: LogExtent, first: int, last: int, *, is_end_named: bool
) -> None:
    """Raises `DataLost` unless the log holds `[first, last)`."""
    holds = f"the log holds [{extent.earliest}, {extent.latest})"
    if first < extent.earliest and first < last:
        raise DataLost(
            f"{where}: records [{first}, {min(extent.earliest, last)}) are gone, {holds}: "
            "retention removed them. Start later, or set on_data_loss to skip"
        )
    if first > extent.latest or (is_end_named and last > extent.latest):
        raise DataLost(
            f"{where}: records [{extent.latest}, {max(first, last)}) are not there, "
            f"{holds}: they were not written yet, or the topic was created again. Give offsets "
            "in the log, or set on_data_loss to skip"
        )


def _require_bound(planned: int, whole: OffsetRange, max_offsets: int | None) -> None:
    if planned + _pieces(whole, max_offsets) > RANGES_MAX:
        raise OptionError(
            "max_offsets_per_partition",
            f"{max_offsets} makes more than {RANGES_MAX} Spark partitions; raise it",
        )
