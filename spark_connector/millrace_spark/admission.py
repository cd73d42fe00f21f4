"""How much of a backlog one micro-batch takes.

Owns the shares. The rule is that of Spark's Kafka source, in proportion to what waits in each
partition and never nothing, except that the sum is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace.records import TopicPartition

STRETCH = 4
"""How much more of a backlog is looked at than its share should take: records differ in size."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The records `[start_offset, end_offset)` that wait in a partition."""

    start_offset: int
    end_offset: int

    def __len__(self) -> int:
        return max(0, self.end_offset - self.start_offset)


@dataclass(frozen=True, slots=True)
class Step:
    """A boundary within a backlog, and the bytes on disk from the one before it up to there."""

    end_offset: int
    size_bytes: int


def shares(waiting: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """How much each may take, in proportion to what waits; what has nothing waiting is left out.

    Each takes at least 1, so that none starves. The sum is `limit`, or all that waits, or the
    number of those where something waits if that is more than `limit`.

    >>> shares({TopicPartition("a", 0): 900, TopicPartition("a", 1): 100}, 50)
    {TopicPartition(topic='a', partition=0): 44, TopicPartition(topic='a', partition=1): 6}
    """
    sizes = {where: waiting[where] for where in sorted(waiting) if waiting[where] > 0}
    total, count = sum(sizes.values()), len(sizes)
    if total <= limit:
        return sizes
    rest = max(0, limit - count)
    beyond_first = max(1, total - count)
    taken = {where: 1 + rest * (size - 1) // beyond_first for where, size in sizes.items()}
    # What rounding down left over goes to those who lost most by it.
    missing = count + rest - sum(taken.values())
    by_remainder = sorted(sizes, key=lambda where: -(rest * (sizes[where] - 1) % beyond_first))
    for where in by_remainder[:missing]:
        taken[where] += 1
    return taken


def admit_records(
    backlogs: Mapping[TopicPartition, Backlog], records_max: int
) -> dict[TopicPartition, int]:
    """The end offset of each partition in a micro-batch of `records_max` offsets."""
    taken = shares({where: len(backlog) for where, backlog in backlogs.items()}, records_max)
    return {
        where: backlog.start_offset + taken.get(where, 0) for where, backlog in backlogs.items()
    }


def first_stretch(backlog: Backlog, *, size_bytes: int, bytes_max: int) -> Backlog:
    """The part at the beginning of a backlog of `size_bytes` where to look for `bytes_max`.

    `STRETCH` times what it takes where all records are of one size, so that the answer is small
    however much waits.
    """
    count = -(-len(backlog) * bytes_max * STRETCH // max(1, size_bytes))
    end_offset = min(backlog.end_offset, backlog.start_offset + max(1, count))
    return Backlog(backlog.start_offset, end_offset)


def admit_steps(steps: Sequence[Step], bytes_max: int) -> int:
    """The end offset behind the steps that fit into `bytes_max`, and at least the first one."""
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
    """Whether a micro-batch is worth making: enough waits, or the last one was long ago.

    `waited_ms` is None before the first one, which does not wait.
    """
    if waited_ms is None or waited_ms >= delay_ms_max:
        return True
    return sum(map(len, backlogs.values())) >= records_min
