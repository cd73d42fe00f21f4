"""Where a log begins: it moves on when retention, or a deletion of records, takes the front off.

Owns the order: the start moves, segments that lie before it leave the log, and the flush deletes
their files behind the checkpoint that names the new start. What is taken is durable, below the high
watermark and in closed segments. The rules of retention are `retention`'s.
"""

from __future__ import annotations

from millrace_server.log.durability import Durability, is_disk_full
from millrace_server.log.errors import OffsetOutOfRange
from millrace_server.log.retention import expired_segments, segments_before
from millrace_server.log.rolling import is_due_by_age, roll
from millrace_server.log.segment import Segment
from millrace_server.log.state import LogState


def remove_expired(
    state: LogState, durability: Durability, *, now_ms: int, high_watermark: int
) -> list[Segment]:
    """See `PartitionLog.retention`."""
    if state.failure is None and is_due_by_age(state.chain.active, state.config, now_ms=now_ms):
        try:
            roll(state, durability)
        except OSError as error:
            # A full disk may have room again once the older segments are gone.
            if not is_disk_full(error):
                state.fail(error)
                raise
    segments, limit_offset = state.chain.segments, durability.settled_offset(high_watermark)
    count = segments_before(segments, min(state.start_offset, limit_offset))
    if state.config.deletes:
        expired = expired_segments(segments, state.config, now_ms=now_ms, limit_offset=limit_offset)
        count = max(count, expired)
    return _drop_first(state, durability, count)


def advance_start(
    state: LogState, durability: Durability, offset: int, *, high_watermark: int
) -> None:
    """See `PartitionLog.advance_start`."""
    if offset > high_watermark:
        raise OffsetOutOfRange(offset, state.start_offset, high_watermark)
    if offset <= state.start_offset:
        return
    state.move_start(offset)
    durability.note_change()
    limit_offset = min(offset, durability.settled_offset(high_watermark))
    _drop_first(state, durability, segments_before(state.chain.segments, limit_offset))


def _drop_first(state: LogState, durability: Durability, count: int) -> list[Segment]:
    if not count:
        return []
    removed = state.chain.drop_first(count)
    state.move_start(state.chain.segments[0].base_offset)
    durability.note_removed(removed)
    return removed
