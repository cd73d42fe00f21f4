"""A follower of a partition in one leader epoch: where it fetches, and what a response makes of it.

Refuses to know connections and other partitions: `fetch_schedule` does. The states:

    FETCHING ──► APPENDING      until all records are as durable as the topic demands
       ▲   │ ──► TRUNCATING     until the tail that the leader has not is off
       │   │ ──► RESETTING      until the log begins where the leader's begins
       └───┴──── each, when the shell reports its end
       FETCHING ──► FAILED      the leader lacks what was committed

    events    on_result(asked, result)   on_acked()   on_truncated()   on_reset()   on_failed()

A position acknowledges everything before it, so there is none while records are not durable. Every
position has the epoch of the last record, so the leader finds a log that is not its own in every
epoch, the same leader's too (KAFKA-7164). Nothing else of a response counts before both logs agree
(KAFKA-14704), and a high watermark alone never truncates a log (KIP-101).

Invariant: `high_watermark <= acked_offset`, and it never goes back, unless the topic allows that an
unclean election loses records.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from millrace_server.replication.divergence import truncation_offset
from millrace_server.replication.effects import (
    AdvanceHighWatermark,
    AdvanceStart,
    Append,
    FollowerEffect,
    ReportLoss,
    Reset,
    Truncate,
)
from millrace_server.replication.log_view import LogView, has_unused_epoch, last_epoch
from millrace_server.replication.messages import (
    Diverging,
    FetchPosition,
    FetchResult,
    OutOfRange,
    Records,
)

Effects = list[FollowerEffect]


class FollowerState(Enum):
    """What a follower is doing; see the module."""

    FETCHING = auto()
    APPENDING = auto()
    TRUNCATING = auto()
    RESETTING = auto()
    FAILED = auto()


_NEXT: Final[dict[FollowerState, frozenset[FollowerState]]] = {
    FollowerState.FETCHING: frozenset(FollowerState) - {FollowerState.FETCHING},
    FollowerState.APPENDING: frozenset({FollowerState.FETCHING}),
    FollowerState.TRUNCATING: frozenset({FollowerState.FETCHING}),
    FollowerState.RESETTING: frozenset({FollowerState.FETCHING}),
    FollowerState.FAILED: frozenset(),
}


class IllegalFollowerEvent(Exception):
    """An event that does not belong to the state: a bug of the shell, never an error of a peer."""


class PartitionFollower:
    """Begins with what the disk has of the log; ends with the epoch."""

    def __init__(
        self, log: LogView, *, leader_epoch: int, high_watermark: int, allows_loss: bool
    ) -> None:
        """`allows_loss`: the topic has `unclean.leader.election.enable`, or a leader was elected
        behind the log's last epoch that may lack what was committed.

        Raises `ValueError` if the table has an epoch of which the log holds no record, as it has
        after a leadership without an append: a leader may send records of older epochs.
        """
        if has_unused_epoch(log):
            raise ValueError(f"epoch {log.epochs.latest} has no record; forget it first")
        self.log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.allows_loss = allows_loss
        self.state = FollowerState.FETCHING
        self._leader_high_watermark = high_watermark
        self._leader_start_offset = log.start_offset

    def position(self) -> FetchPosition | None:
        """What to ask the leader for; None while there is nothing to ask for."""
        log = self.log
        if self.state is not FollowerState.FETCHING or log.acked_offset < log.end_offset:
            return None
        return FetchPosition(
            self.leader_epoch, log.end_offset, last_epoch(log), log.durable_start_offset
        )

    def on_result(self, asked: FetchPosition, result: FetchResult) -> Effects:
        """What the leader says to a position; to one that is not that of now it says nothing."""
        if asked != self.position():
            return []
        match result.outcome:
            case Diverging(end):
                return self._truncate(truncation_offset(self.log, end))
            case OutOfRange(start_offset):
                return self._reset(start_offset)
            case Records() as records:
                self._leader_high_watermark = result.high_watermark
                self._leader_start_offset = result.log_start_offset
                if records.data is None:
                    return self._adopt()
                self._take_state(FollowerState.APPENDING)
                return [Append(records)]
            case _:
                return []

    def on_acked(self) -> Effects:
        """More of the log is as durable as the topic demands, or as much as before."""
        is_all = self.log.acked_offset >= self.log.end_offset
        if self.state is FollowerState.APPENDING and is_all:
            self._take_state(FollowerState.FETCHING)
        may_adopt = self.state in (FollowerState.APPENDING, FollowerState.FETCHING)
        return self._adopt() if may_adopt else []

    def on_truncated(self) -> None:
        """The tail is off: the follower asks again, and the leader may find another part."""
        self._leave(FollowerState.TRUNCATING)

    def on_reset(self) -> None:
        """The log is empty and begins where the leader's does."""
        self._leave(FollowerState.RESETTING)

    def on_failed(self) -> None:
        """The shell could not do what an effect asked for: the log is as it is."""
        if self.state not in (FollowerState.FETCHING, FollowerState.FAILED):
            self._take_state(FollowerState.FETCHING)

    def _truncate(self, end_offset: int) -> Effects:
        lost = self._lost(end_offset)
        if lost is not None:
            return [lost]
        start_offset = self.log.start_offset
        if end_offset <= start_offset:
            # No record is left, nor an epoch. After a loss, what was deleted here may be there.
            return self._begin_anew(start_offset if end_offset == start_offset else 0)
        self.high_watermark = min(self.high_watermark, end_offset)
        self._take_state(FollowerState.TRUNCATING)
        return [Truncate(end_offset, self.high_watermark)]

    def _reset(self, start_offset: int) -> Effects:
        lost = self._lost(start_offset)
        return self._begin_anew(start_offset) if lost is None else [lost]

    def _begin_anew(self, start_offset: int) -> Effects:
        # What is before the leader's start is committed: its high watermark is not lower.
        self.high_watermark = start_offset
        self._take_state(FollowerState.RESETTING)
        return [Reset(start_offset, start_offset)]

    def _lost(self, end_offset: int) -> ReportLoss | None:
        """A fault unless the leader has everything that was committed, or need not have it. A log
        without a record has nothing to keep."""
        is_empty = self.log.start_offset == self.log.end_offset
        if end_offset >= self.high_watermark or self.allows_loss or is_empty:
            return None
        self._take_state(FollowerState.FAILED)
        return ReportLoss(
            f"the leader of epoch {self.leader_epoch} has the log of this replica up to offset "
            f"{end_offset}, and records before offset {self.high_watermark} are committed: the "
            "leader has lost some. Keep both directories, and restore one of them, or elect a "
            "leader uncleanly to accept the loss"
        )

    def _adopt(self) -> Effects:
        """Takes over the leader's two offsets, as far as the own log has the records."""
        out: Effects = []
        high_watermark = min(self._leader_high_watermark, self.log.acked_offset)
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            out.append(AdvanceHighWatermark(high_watermark))
        start_offset = min(self._leader_start_offset, self.high_watermark)
        if start_offset > self.log.start_offset:
            out.append(AdvanceStart(start_offset))
        return out

    def _leave(self, state: FollowerState) -> None:
        if self.state is not state:
            raise IllegalFollowerEvent(f"{self.state.name} does not end as {state.name} does")
        self._take_state(FollowerState.FETCHING)

    def _take_state(self, state: FollowerState) -> None:
        if state not in _NEXT[self.state]:
            raise IllegalFollowerEvent(f"{self.state.name} to {state.name}")
        self.state = state
