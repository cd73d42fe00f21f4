"""What replicas of the metadata log send each other, as values: no encoding, no connection.

Followers pull (KIP-595). A fetch says how far a follower's log is durable, so it is the
acknowledgement of everything before `fetch_offset` as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from millrace_server.log.epochs import EpochEnd
from millrace_server.raft.voters import ReplicaKey


class LogPosition(NamedTuple):
    """Where a log ends: the epoch of its last record, and the offset behind it.

    Of two logs the one with the larger position has every record that may be committed (Raft
    §5.4.1).
    """

    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    """A snapshot of what the log says before `end_offset`; `epoch` is that of its last record."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `epoch` is the sender's; `destination` is a broker id."""

    source: ReplicaKey
    destination: int
    epoch: int


@dataclass(frozen=True, slots=True)
class VoteRequest(Message):
    """Asks for a vote in `epoch`, or, with `is_pre_vote`, whether one would be given (KIP-996).

    A pre-vote carries the epoch that the sender is in and changes no state of a voter. `voter` is
    the key that the sender knows the destination by: another directory must not answer (KIP-853).
    """

    voter: ReplicaKey
    last: LogPosition
    is_pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse(Message):
    """The vote, and the leader of the voter's epoch if it knows one."""

    leader_id: int | None
    is_granted: bool
    is_pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginEpochRequest(Message):
    """The sender leads in `epoch`; sent again until the voter fetches."""


@dataclass(frozen=True, slots=True)
class EndEpochRequest(Message):
    """The sender no longer leads in `epoch`. `successors`: broker ids, the longest log first."""

    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StaleEpochResponse(Message):
    """The message of an older epoch was refused; `leader_id` leads in the sender's epoch."""

    leader_id: int | None


@dataclass(frozen=True, slots=True)
class FetchRequest(Message):
    """Asks the leader for records from `fetch_offset` on.

    Everything before it is durable at the sender. `last_epoch` is the epoch of the record before
    it, and `high_watermark` what the sender knows to be committed (KIP-1166).
    """

    fetch_id: int
    fetch_offset: int
    last_epoch: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Records:
    """The batches from `offset` on; none is a response as well. `data` is the shell's."""

    offset: int
    data: object = None


@dataclass(frozen=True, slots=True)
class Diverging:
    """The sender's log has records that the leader's has not: up to here they may agree."""

    end: EpochEnd


@dataclass(frozen=True, slots=True)
class SnapshotNeeded:
    """The leader's log begins behind `fetch_offset`: the snapshot replaces what is before."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class NotLeader:
    """The receiver does not lead in its epoch."""


FetchOutcome = Records | Diverging | SnapshotNeeded | NotLeader


@dataclass(frozen=True, slots=True)
class FetchResponse(Message):
    """The response to the fetch with `fetch_id`."""

    fetch_id: int
    leader_id: int | None
    high_watermark: int
    outcome: FetchOutcome
