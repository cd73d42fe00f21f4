"""Where two logs part: the leader's question and the follower's answer to it (KIP-101, KIP-279).

    follower    epoch 1 ───► 5  epoch 3 ───► 12        asks with (fetch offset 12, last epoch 3)
    leader      epoch 1 ─────────► 10  epoch 4 ──►     has no epoch 3: answers (epoch 1, end 10)
    follower    epoch 1 ───► 5                         its epoch 1 ends at 5: asks with (5, 1)

Each answer takes at least one record off, or the logs agree. So the follower comes to an end, by an
epoch at a time if it has missed several leaders. A log whose end the leader cannot judge is
replaced: what lies before the leader's start was deleted.
"""

from __future__ import annotations

from millrace_server.log.epochs import NO_EPOCH, EpochEnd
from millrace_server.replication.log_view import LogView, end_offset_for
from millrace_server.replication.messages import Diverging, FetchPosition, OutOfRange


def disagreement(log: LogView, position: FetchPosition) -> Diverging | OutOfRange | None:
    """Of the leader's log: why it does not go on where a follower's ends; None if it does.

    A follower that knows no epoch has an empty log, and agrees with every log that has its offset.
    """
    if not log.start_offset <= position.fetch_offset:
        return OutOfRange(log.start_offset)
    if position.last_epoch == NO_EPOCH:
        is_within = position.fetch_offset <= log.end_offset
        return None if is_within else OutOfRange(log.start_offset)
    end = end_offset_for(log, position.last_epoch)
    if end is None:
        # All that the leader has is of later epochs.
        return OutOfRange(log.start_offset)
    agrees = end.epoch == position.last_epoch and position.fetch_offset <= end.end_offset
    return None if agrees else Diverging(end)


def truncation_offset(log: LogView, leader: EpochEnd) -> int:
    """Of the follower's log: the end that it may keep after the leader's answer.

    One before the log's start means that the leader does not have what was deleted here.
    """
    own = end_offset_for(log, leader.epoch)
    if own is not None:
        return min(own.end_offset, leader.end_offset)
    # All of its epochs are later than the leader's: it may keep what was before the first.
    entries = log.epochs.entries
    return min(entries[0].start_offset if entries else log.start_offset, leader.end_offset)
