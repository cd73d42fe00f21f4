"""Which segments a log's retention no longer keeps.

Owns the rules, by time, by size and by the log's start. Refuses to delete: `PartitionLog.retention`
does. Source: Kafka's `retention.ms` and `retention.bytes`; KAFKA-5634 for the limit at the high
watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace_server.log.config import LogConfig
from millrace_server.log.segment import Segment


def expired_segments(
    segments: Sequence[Segment], config: LogConfig, *, now_ms: int, limit_offset: int
) -> int:
    """Returns how many of the oldest segments may go.

    A segment goes by time when its newest record is older than `retention_ms`, and by size while
    the segments behind it alone hold `retention_bytes` or more below `limit_offset`: what is behind
    that may be truncated, and must not take the place of what stays. It stays if it is the last
    one, and if it reaches beyond `limit_offset`. Where its records carry no timestamps, or
    compaction left none, it goes by time when the next segment that has one does. An older segment
    that stays keeps all younger ones: a log has no holes.
    """
    rest_bytes = sum(_bytes_before(limit_offset, segment) for segment in segments)
    count = 0
    for index, segment in enumerate(segments[:-1]):
        if segment.end_offset > limit_offset:
            break
        rest_bytes -= segment.size_bytes
        is_too_much = config.retention_bytes >= 0 and rest_bytes >= config.retention_bytes
        if is_too_much or is_too_old(segment, config, now_ms=now_ms):
            count = index + 1
        elif segment.max_timestamp >= 0:
            break
    return count


def _bytes_before(offset: int, segment: Segment) -> int:
    """The bytes of the records before an offset; up to an index interval fewer inside a segment."""
    if segment.end_offset <= offset:
        return segment.size_bytes
    if segment.base_offset >= offset:
        return 0
    return segment.peek_index().floor_offset(offset - segment.base_offset)[1]


def segments_before(segments: Sequence[Segment], offset: int) -> int:
    """Returns how many of the oldest segments end at `offset` or before it; never the last one."""
    return sum(segment.end_offset <= offset for segment in segments[:-1])


def is_too_old(segment: Segment, config: LogConfig, *, now_ms: int) -> bool:
    """Returns whether even the segment's newest record is older than the log keeps records."""
    return (
        config.retention_ms >= 0
        and segment.max_timestamp >= 0
        and now_ms - segment.max_timestamp > config.retention_ms
    )
