"""The roles of a replica, and which role may follow which: all legality is here.

    Unattached ──► Prospective ──► Candidate ──► Leader ──► Resigned
        ▲  │           │  ▲            │                       │
        │  ▼           ▼  │            ▼                       │
        │ Follower ◄───┴──┴────────────┘                       │
        └───────────── in the next epoch ──────────────────────┘

In a higher epoch every role may become Unattached or Follower. Sources: Raft §5.2, KIP-595
(Unattached, Resigned), KIP-996 (Prospective).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from millrace_server.raft.leadership import Leadership
from millrace_server.raft.messages import SnapshotId
from millrace_server.raft.voters import ReplicaKey, VoterSet


@dataclass(slots=True)
class Unattached:
    """Knows no leader in its epoch; becomes Prospective at `deadline_ms` if it votes.

    An observer asks a voter for the leader at `find_leader_ms`.
    """

    deadline_ms: int
    find_leader_ms: int


@dataclass(slots=True)
class Follower:
    """Copies the log of `leader_id`; becomes Prospective at `deadline_ms`, without a response.

    `fetch_id` is that of the fetch that has no response, None while the shell appends, truncates or
    loads a snapshot. `retry_ms` is when the fetch is sent again.
    """

    leader_id: int
    deadline_ms: int
    has_fetched: bool = False
    fetch_id: int | None = None
    retry_ms: int | None = None
    snapshot: SnapshotId | None = None
    """The snapshot that the shell fetches."""
    leader_high_watermark: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way that leads to the next fetch."""
        return self.fetch_id is None and self.retry_ms is None and self.snapshot is None


@dataclass(slots=True)
class Ballot:
    """The votes of one round; a voter counts once."""

    granted: set[ReplicaKey] = field(default_factory=set)
    refused: set[ReplicaKey] = field(default_factory=set)

    def count(self, voter: ReplicaKey, *, is_granted: bool) -> None:
        """Takes a voter's first response; later ones change nothing."""
        if voter not in self.granted | self.refused:
            (self.granted if is_granted else self.refused).add(voter)

    def is_won(self, voters: VoterSet) -> bool:
        """Whether a majority has granted."""
        return voters.is_majority(self.granted)

    def is_lost(self, voters: VoterSet) -> bool:
        """Whether so many have refused that a majority cannot grant."""
        refusals = len(self.refused.intersection(voters.keys))
        return len(voters) - refusals < voters.majority

    def missing(self, voters: VoterSet) -> list[ReplicaKey]:
        """The voters that have not responded."""
        return [key for key in voters.keys if key not in self.granted | self.refused]


@dataclass(slots=True)
class Prospective:
    """Asks the voters whether they would vote for it, before it begins an epoch."""

    deadline_ms: int
    retry_ms: int
    ballot: Ballot = field(default_factory=Ballot)


@dataclass(slots=True)
class Candidate:
    """Has begun an epoch, has voted for itself and asks the others for their votes."""

    deadline_ms: int
    retry_ms: int
    ballot: Ballot = field(default_factory=Ballot)


@dataclass(slots=True)
class Leader:
    """Leads the epoch."""

    leadership: Leadership


@dataclass(slots=True)
class Resigned:
    """Has led its epoch and leads no more; leaves the epoch at `deadline_ms`."""

    deadline_ms: int


Role = Unattached | Follower | Prospective | Candidate | Leader | Resigned

WITHIN_EPOCH: Final[Mapping[type[Role], frozenset[type[Role]]]] = MappingProxyType(
    {
        Unattached: frozenset({Unattached, Follower, Prospective}),
        Follower: frozenset({Unattached, Follower, Prospective}),
        Prospective: frozenset({Unattached, Follower, Prospective}),
        Candidate: frozenset({Follower, Leader, Prospective}),
        Leader: frozenset({Resigned}),
        Resigned: frozenset(),
    }
)
"""Which roles may follow a role in the same epoch."""
INTO_EPOCH: Final[Mapping[type[Role], frozenset[type[Role]]]] = MappingProxyType(
    {
        Unattached: frozenset({Unattached, Follower}),
        Follower: frozenset({Unattached, Follower}),
        Prospective: frozenset({Unattached, Follower, Candidate}),
        Candidate: frozenset({Unattached, Follower}),
        Leader: frozenset({Unattached, Follower}),
        Resigned: frozenset({Unattached, Follower}),
    }
)
"""Which roles may follow a role in a higher epoch."""


class IllegalTransition(Exception):
    """A role that may not follow: a bug of the replica, never an error of a peer."""


def check_transition(before: tuple[int, Role], after: tuple[int, Role]) -> None:
    """Raises `IllegalTransition`; each pair is an epoch and the role in it."""
    (old_epoch, old), (new_epoch, new) = before, after
    legal = WITHIN_EPOCH if new_epoch == old_epoch else INTO_EPOCH
    if new_epoch < old_epoch or type(new) not in legal[type(old)]:
        raise IllegalTransition(
            f"{type(old).__name__} of epoch {old_epoch} to {type(new).__name__} of {new_epoch}"
        )
