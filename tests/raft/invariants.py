"""What must hold of a quorum at every moment (Raft, figure 3)."""

from __future__ import annotations

import bisect

from millrace_server.raft.voters import ReplicaKey
from tests.raft.replica_log import Entry, ReplicaLog

ALONE_MS_MAX = 1_000


class Violation(AssertionError):
    """An invariant does not hold."""


class Invariants:
    """Sees every replica from outside. Raises `Violation`."""

    def __init__(self) -> None:
        self.committed: list[Entry] = []
        self._commit_epochs: list[int] = []
        """The epoch of the leader that committed each record; never falls."""
        self._leaders: dict[int, ReplicaKey] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._alone_since_ms: dict[ReplicaKey, int] = {}

    def on_leader(self, key: ReplicaKey, epoch: int, log: ReplicaLog) -> None:
        """Election safety and leader completeness."""
        if self._leaders.setdefault(epoch, key) != key:
            raise Violation(f"{self._leaders[epoch]} and {key} lead epoch {epoch}")
        # A leader that was paused may be late: what later epochs have committed it need not have.
        count = bisect.bisect_left(self._commit_epochs, epoch)
        if log.all_entries()[:count] != self.committed[:count]:
            raise Violation(f"{key} leads epoch {epoch} without records that are committed")

    def on_leading(self, key: ReplicaKey, now_ms: int, *, is_alone: bool) -> None:
        """A leader that no majority fetches from resigns, by its own clock and timer.

        `is_alone` is about the time since its fetch timeout; a replica that was paused has its
        timer at once when it goes on.
        """
        if not is_alone:
            self._alone_since_ms.pop(key, None)
        elif now_ms > self._alone_since_ms.setdefault(key, now_ms) + ALONE_MS_MAX:
            raise Violation(f"{key} leads though no majority fetches from it")

    def on_vote(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        """One vote in an epoch."""
        if self._votes.setdefault((voter, epoch), candidate) != candidate:
            raise Violation(f"{voter} has voted twice in epoch {epoch}")

    def on_high_watermark(self, key: ReplicaKey, epoch: int, log: ReplicaLog, offset: int) -> None:
        """Committed records never change, whichever replica says that they are committed."""
        entries = log.all_entries()[:offset]
        if len(entries) < offset:
            raise Violation(f"{key} has committed {offset} records and holds {len(entries)}")
        shared = min(offset, len(self.committed))
        if entries[:shared] != self.committed[:shared]:
            raise Violation(f"{key} has other committed records before offset {shared}")
        self.committed.extend(entries[shared:])
        self._commit_epochs.extend([epoch] * (len(self.committed) - len(self._commit_epochs)))

    def on_commit(self, offset: int, durable: int, majority: int) -> None:
        """A leader commits what a majority of the voters has on the disk."""
        if durable < majority:
            raise Violation(f"{durable} voters hold offset {offset} durably, {majority} must")
