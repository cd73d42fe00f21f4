"""The voters of the quorum, and which set of them is in force at each offset of the log.

A voter is a broker id and the id of its data directory: a broker that comes back with an empty
directory has forgotten its votes and must not vote again under its old identity (KIP-853). A voter
set is in force from the moment its record is in the log, committed or not (Raft §4.1).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a broker, and the data directory that holds its state."""

    broker_id: int
    directory_id: uuid.UUID


class Voter(NamedTuple):
    """A voter and the address of its listener for brokers."""

    key: ReplicaKey
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, by rising broker id. Invariant: no broker id stands twice."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """The set of these voters. Raises `ValueError` for a broker id that stands twice."""
        ordered = tuple(sorted(voters))
        if len({voter.key.broker_id for voter in ordered}) != len(ordered):
            raise ValueError("a broker id stands twice among the voters")
        return cls(ordered)

    def __contains__(self, key: ReplicaKey) -> bool:
        return any(voter.key == key for voter in self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The voters' keys, by rising broker id."""
        return tuple(voter.key for voter in self.voters)

    def key_of(self, broker_id: int) -> ReplicaKey | None:
        """The key of a broker that votes, None if it does not."""
        return next((key for key in self.keys if key.broker_id == broker_id), None)

    def others(self, key: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """The voters apart from one."""
        return tuple(other for other in self.keys if other != key)

    def is_majority(self, keys: Iterable[ReplicaKey]) -> bool:
        """Whether these keys hold a majority; keys that do not vote do not count."""
        return len(set(keys).intersection(self.keys)) >= self.majority

    def majority_offset(self, end_offsets: Mapping[ReplicaKey, int]) -> int:
        """The largest offset that a majority has reached; a voter that is missing is at 0.

        >>> a, b, c = (ReplicaKey(number, uuid.UUID(int=number)) for number in (1, 2, 3))
        >>> voters = VoterSet.of(Voter(key, "localhost", 9092) for key in (a, b, c))
        >>> voters.majority_offset({a: 10, b: 7})
        7
        """
        reached = sorted((end_offsets.get(key, 0) for key in self.keys), reverse=True)
        return reached[self.majority - 1]

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set and one more voter. Raises `ValueError` if its broker id votes already."""
        return VoterSet.of((*self.voters, voter))

    def without(self, key: ReplicaKey) -> VoterSet:
        """The set without one voter. Raises `ValueError` if it does not vote, or votes alone."""
        if key not in self:
            raise ValueError(f"broker {key.broker_id} with this directory does not vote")
        if len(self) == 1:
            raise ValueError(f"broker {key.broker_id} is the last voter")
        return VoterSet(tuple(voter for voter in self.voters if voter.key != key))


class VoterChange(NamedTuple):
    """The record of a voter set, and where in the log it stands."""

    offset: int
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class VoterHistory:
    """The voter sets of a log. `first` is in force before every change, from the bootstrap or a
    snapshot. Invariant: the offsets of `changes` rise strictly. A changed history is a new one.
    """

    first: VoterSet
    changes: tuple[VoterChange, ...] = ()

    @property
    def latest(self) -> VoterSet:
        """The set in force."""
        return self.changes[-1].voters if self.changes else self.first

    @property
    def latest_offset(self) -> int:
        """Where the set in force stands in the log, -1 if before its first record."""
        return self.changes[-1].offset if self.changes else -1

    def may_lead(self, key: ReplicaKey, *, high_watermark: int) -> bool:
        """Whether a replica may ask for votes: it is in the set in force, or in the committed one.

        A leader whose own removal is in its log may have to commit it (Raft dissertation §4.2.2).
        """
        voters = [self.first]
        for change in self.changes:
            if change.offset < high_watermark:
                voters.clear()
            voters.append(change.voters)
        return any(key in known for known in voters)

    def add(self, offset: int, voters: VoterSet) -> VoterHistory:
        """The history with the record at `offset`, which must be behind those before it."""
        if offset <= self.latest_offset:
            raise ValueError(f"a voter set at offset {offset}, behind {self.latest_offset}")
        return VoterHistory(self.first, (*self.changes, VoterChange(offset, voters)))

    def truncate_to(self, end_offset: int) -> VoterHistory:
        """The history of the log that ends at `end_offset`: later sets were never in force."""
        return VoterHistory(self.first, tuple(c for c in self.changes if c.offset < end_offset))
