"""Which segments of a log compaction should clean, and whether it is worth it now.

Owns the choice. Refuses to read: `cleaning` does. Source: Kafka's `LogCleanerManager`
(`min.cleanable.dirty.ratio`, `min.compaction.lag.ms`, `max.compaction.lag.ms`) and `LogCleaner`
for the groups.

    closed segments                               active
    ──────────────────────┬─────────────┬────────┼╌╌╌╌╌╌
    clean: no key twice   │ dirty       │ not yet: too young, or not durable below the
                          │             │ high watermark
                   first dirty offset   end of what is planned
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from millrace_server.log.cleanliness import Cleanliness
from millrace_server.log.config import LogConfig
from millrace_server.log.segment import RELATIVE_OFFSET_MAX, Segment


@dataclass(frozen=True, slots=True)
class Plan:
    """The closed segments that a pass goes over, from the first of the log on.

    Its key map begins at `dirty_offset`, which lies in one of them or at their end.
    """

    segments: tuple[Segment, ...]
    dirty_offset: int

    def groups(self, end_offset: int, *, segment_bytes: int) -> Iterator[list[Segment]]:
        """Yields the segments that begin before `end_offset` in runs, to become one segment each.

        A run holds at most `segment_bytes`, but for a single segment that is larger, and spans no
        more offsets than an index entry can tell apart.
        """
        group: list[Segment] = []
        size_bytes = 0
        for segment in self.segments:
            if segment.base_offset >= end_offset:
                break
            size_bytes += segment.size_bytes
            if group and (
                size_bytes > segment_bytes
                or segment.end_offset - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX
            ):
                yield group
                group, size_bytes = [], segment.size_bytes
            group.append(segment)
        if group:
            yield group


def plan(
    closed: Iterable[Segment],
    config: LogConfig,
    clean: Cleanliness,
    *,
    start_offset: int,
    limit_offset: int,
    now_ms: int,
) -> Plan | None:
    """Returns what to clean now, None if nothing is due.

    Due is a pass when more than `min_cleanable_dirty_ratio` of the bytes are dirty, when a dirty
    record is older than `max_compaction_lag_ms`, and when the horizon of a tombstone is reached.
    Nothing reaches beyond `limit_offset`, and nothing is younger than `min_compaction_lag_ms`.
    """
    dirty_offset = max(clean.end_offset, start_offset)
    youngest_ms = now_ms - config.min_compaction_lag_ms

    def is_cleanable(segment: Segment) -> bool:
        if segment.end_offset > limit_offset:
            return False
        is_clean = segment.end_offset <= dirty_offset
        return is_clean or not config.min_compaction_lag_ms or segment.max_timestamp <= youngest_ms

    segments = tuple(takewhile(is_cleanable, closed))
    if not segments:
        return None
    dirty = [segment for segment in segments if segment.end_offset > dirty_offset]
    is_due = (
        _is_dirty_enough(segments, dirty, config)
        or _is_overdue(dirty, config, now_ms=now_ms)
        or clean.has_ripe_tombstones(now_ms)
    )
    return Plan(segments, min(dirty_offset, segments[-1].end_offset)) if is_due else None


def _is_dirty_enough(
    segments: Sequence[Segment], dirty: Sequence[Segment], config: LogConfig
) -> bool:
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    total_bytes = sum(segment.size_bytes for segment in segments)
    return dirty_bytes > 0 and dirty_bytes > total_bytes * config.min_cleanable_dirty_ratio


def _is_overdue(dirty: Sequence[Segment], config: LogConfig, *, now_ms: int) -> bool:
    if not dirty or now_ms <= config.max_compaction_lag_ms:
        return False
    return 0 <= dirty[0].begun_ms() < now_ms - config.max_compaction_lag_ms
