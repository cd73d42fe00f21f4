"""What a replica wants done.

The shell carries effects out in their order, each to its end, and all of one event before it passes
the next event: a `Send` leaves only when the `Persist` before it is durable. Two take longer and
end with an event: the sync of what was appended, and a `FetchSnapshot`. After a failure of the disk
no later effect is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.raft.election_state import ElectionState
from millrace_server.raft.messages import Message, Records, SnapshotId
from millrace_server.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class Persist:
    """Makes the state durable."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class Send:
    """Sends a message. One that is lost is no error. The shell puts batches into `Records`."""

    message: Message


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """The replica leads in `epoch`: the shell makes the epoch and where it begins durable, appends
    a record as its first, and calls `on_appended`. Nothing is committed before that record is.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """The replica no longer leads: what it has appended and not committed is undecided."""

    epoch: int


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """The leader appends the record of a voter set; the shell calls `on_voters`, `on_appended`."""

    voters: VoterSet


@dataclass(frozen=True, slots=True)
class Append:
    """The follower appends the leader's batches; the shell calls `on_voters` for each voter set
    among them, and `on_durable` when they are durable; at once if there are none."""

    records: Records


@dataclass(frozen=True, slots=True)
class Truncate:
    """The follower takes off what is behind `end_offset`; the shell calls `on_truncated`."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """The shell begins to load a snapshot from the leader. At the end of that it calls
    `on_snapshot_fetched` or `on_snapshot_failed`; other events may come before."""

    leader_id: int
    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The shell replaces log and image by the snapshot; it calls `on_snapshot_installed`."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Every record before `offset` is committed."""

    offset: int


Effect = (
    Persist
    | Send
    | BeginEpoch
    | EndEpoch
    | AppendVoters
    | Append
    | Truncate
    | FetchSnapshot
    | InstallSnapshot
    | AdvanceHighWatermark
)
