"""When a log closes its active segment, and how it begins the next one.

Owns the rules, by size and by age. Source: Kafka's `segment.bytes` and `segment.ms`.
"""

from __future__ import annotations

from millrace_server.log.config import SEGMENT_BYTES_MAX, LogConfig
from millrace_server.log.durability import Durability
from millrace_server.log.retention import is_too_old
from millrace_server.log.segment import RELATIVE_OFFSET_MAX, Segment
from millrace_server.log.state import LogState


def must_roll(
    active: Segment,
    config: LogConfig,
    size_bytes: int,
    last_offset: int,
    timestamp: int,
    now_ms: int,
) -> bool:
    """Whether a batch goes into a new segment; the active one has batches."""
    if active.size_bytes + size_bytes > config.segment_bytes:
        return True
    if active.size_bytes > SEGMENT_BYTES_MAX - size_bytes:
        return True
    if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
        return True
    # Kafka's rule: the records' own clock as long as they have one, so that a topic filled
    # from an archive rolls by the time of its records.
    reached = timestamp if timestamp >= 0 else now_ms
    return reached - active.first_timestamp > config.roll_ms


def roll(state: LogState, durability: Durability) -> Segment:
    """Begins a new active segment at the log's end. Raises `OSError`; nothing is changed then."""
    fresh = state.chain.roll(
        state.disk,
        state.directory,
        index_interval_bytes=state.config.index_interval_bytes,
    )
    durability.note_new_segment(fresh)
    return fresh


def is_due_by_age(active: Segment, config: LogConfig, *, now_ms: int) -> bool:
    """Whether a segment has to be closed though nothing is appended.

    Retention takes closed segments alone, and so does compaction.
    """
    if not active.size_bytes:
        return False
    if config.deletes and is_too_old(active, config, now_ms=now_ms):
        return True
    return config.compacts and 0 <= active.first_timestamp < now_ms - config.max_compaction_lag_ms
