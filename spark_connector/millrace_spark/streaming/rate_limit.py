"""The rate limit of a stream: the part of a backlog that one micro-batch reads.

Owns the shares. As in Spark's Kafka source, a partition's share is in proportion to its backlog and
at least one record. Unlike there, the sum is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace.records import TopicPartition

SAMPLE_FACTOR = 4
"""The estimate covers so many times the share, because records differ in size."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The records `[start_offset, end_offset)` of a partition that the stream has not read."""

    start_offset: int
    end_offset: int

    def __len__(self) -> int:
        return max(0, self.end_offset - self.start_offset)


@dataclass(frozen=True, slots=True)
class Step:
    """A boundary within a backlog, and the bytes on disk since the previous boundary."""

    end_offset: int
    size_bytes: int


def shares(sizes: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """The share of each partition, in proportion to its size; empty partitions are left out.

    A share is at least 1, so that no partition starves. The sum is the smaller of `limit` and the
    sum of the sizes, but at least the number of partitions that are not empty.

    >>> shares({TopicPartition("a", 0): 900, TopicPartition("a", 1): 100}, 50)
    {TopicPartition(topic='a', partition=0): 44, TopicPartition(topic='a', partition=1): 6}
    """
    sizes = {where: sizes[where] for where in sorted(sizes) if sizes[where] > 0}
    total, count = sum(sizes.values()), len(sizes)
    if total <= limit:
        return sizes
    rest = max(0, limit - count)
    beyond_first = max(1, total - count)
    taken = {where: 1 + rest * (size - 1) // beyond_first for where, size in sizes.items()}
    # The remainder of the division goes to the partitions with the largest fractions.
    missing = count + rest - sum(taken.values())
    by_remainder = sorted(sizes, key=lambda where: -(rest * (sizes[where] - 1) % beyond_first))
    for where in by_remainder[:missing]:
        taken[where] += 1
    return taken


def limit_records(
    backlogs: Mapping[TopicPartition, Backlog], records_max: int
) -> dict[TopicPartition, int]:
    """The end offset of each partition in a micro-batch of `records_max` offsets."""
    taken = shares({where: len(backlog) for where, backlog in backlogs.items()}, records_max)
    return {
        where: backlog.start_offset + taken.get(where, 0) for where, backlog in backlogs.items()
    }


def leading_part(backlog: Backlog, *, size_bytes: int, bytes_max: int) -> Backlog:
    """The beginning of a backlog of `size_bytes`, long enough to hold `bytes_max`.

    `SAMPLE_FACTOR` times the records that the share has if all are of one size. So the broker's
    answer is small, however long the backlog is.
    """
    count = -(-len(backlog) * bytes_max * SAMPLE_FACTOR // max(1, size_bytes))
    end_offset = min(backlog.end_offset, backlog.start_offset + max(1, count))
    return Backlog(backlog.start_offset, end_offset)


def limit_bytes(steps: Sequence[Step], bytes_max: int) -> int:
    """The end offset of the leading steps that fit into `bytes_max`, but at least of the first."""
    end_offset, size_bytes = steps[0].end_offset, steps[0].size_bytes
    for step in steps[1:]:
        size_bytes += step.size_bytes
        if size_bytes > bytes_max:
            break
        end_offset = step.end_offset
    return end_offset


def is_due(
    backlogs: Mapping[TopicPartition, Backlog],
    *,
    records_min: int,
    waited_ms: float | None,
    delay_ms_max: int,
) -> bool:
    """Whether a micro-batch is due: the backlog is large enough, or the delay is over.

    `waited_ms` is the time since the last micro-batch; None before the first, which is due.
    """
    if waited_ms is None or waited_ms >= delay_ms_max:
        return True
    return sum(map(len, backlogs.values())) >= records_min
