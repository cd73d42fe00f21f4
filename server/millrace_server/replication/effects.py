"""What the replicas of a partition want done.

The shell carries effects out in their order, each to its end, and all of one event before it passes
the next event of the partition. Only the sync behind an `Append` takes longer: it ends with an
event. After a failure of the disk no later effect is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.replication.messages import BrokerKey, Records


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Every record before `offset` is committed: consumers may read it, and produces that wait for
    it are acked."""

    offset: int


@dataclass(frozen=True, slots=True)
class AdvanceLowWatermark:
    """No replica in sync brings back a record before `offset`, after `await_low_watermark`."""

    offset: int


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """The leader asks the controller for this ISR. The shell reports how that ended, once, with
    `on_accepted`, `on_refused` or `on_undecided`.

    The controller takes it only at this partition epoch, and then raises the partition epoch, also
    if the ISR is the one that it had: after that no older proposal can take effect. `isr` has the
    broker epochs that the leader knows, -1 for unknown.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[BrokerKey, ...]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The ISR without broker epochs."""
        return tuple(member.broker_id for member in self.isr)


@dataclass(frozen=True, slots=True)
class Append:
    """The follower appends the leader's batches; the shell calls `on_acked` when more of them is
    as durable as the topic demands, or `on_failed`."""

    records: Records


@dataclass(frozen=True, slots=True)
class Truncate:
    """The follower takes off the records from `end_offset` on, and the epochs that have no record
    then, also if the log ends there. The shell calls `on_truncated`, or `on_failed`.

    `high_watermark` is that of the replica from now on. It is lower than before only if the leader
    was elected uncleanly; a restart must not find the higher one.
    """

    end_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The follower replaces its log by an empty one that begins at `start_offset`, without epochs.
    The shell calls `on_reset`, or `on_failed`. `high_watermark` as in `Truncate`, but it may rise.

    The log may begin before where it began only if the leader was elected uncleanly.
    """

    start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class AdvanceStart:
    """The follower's log begins at `offset`, as the leader's does."""

    offset: int


@dataclass(frozen=True, slots=True)
class ReportLoss:
    """The leader lacks records that were committed. The follower keeps its log as it is and fetches
    no more; the shell takes the partition offline with the sentence, and alters nothing."""

    message: str


LeaderEffect = AdvanceHighWatermark | AdvanceLowWatermark | ProposeIsr
FollowerEffect = Append | Truncate | Reset | AdvanceHighWatermark | AdvanceStart | ReportLoss
