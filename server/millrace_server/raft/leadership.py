"""What a leader knows of its epoch: how far each replica is, what is committed, which fetches wait.

Owns the rule of commitment and the check of the quorum. Refuses to know roles, and how messages
travel.

    epoch_start_offset <= every offset that this leader commits
    high_watermark <= majority of the voters' durable ends

A leader commits a record of its own epoch first, and with it all before (Raft §5.4.2). A leader
that a majority has not fetched from for a while resigns: it may be cut off, and another may lead
(KAFKA-15489).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from millrace_server.raft.messages import FetchRequest
from millrace_server.raft.voters import ReplicaKey, VoterSet


@dataclass(slots=True)
class Progress:
    """One replica: its log is durable to `end_offset`; its last fetch came at `fetched_ms`."""

    end_offset: int
    fetched_ms: int
    caught_up_ms: int
    """When it last had all that the leader had."""


class ParkedFetch(NamedTuple):
    """A fetch that waits for records or for a higher high watermark."""

    request: FetchRequest
    deadline_ms: int


class Leadership:
    """The state of a leader in one epoch, from the election to the resignation."""

    def __init__(
        self, key: ReplicaKey, epoch_start_offset: int, high_watermark: int, now_ms: int
    ) -> None:
        self.key = key
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = high_watermark
        self.began_ms = now_ms
        self.progress: dict[ReplicaKey, Progress] = {}
        self.parked: dict[ReplicaKey, ParkedFetch] = {}
        self.announce_ms = now_ms
        """When the voters that do not fetch are told of the leader again."""

    @property
    def has_committed(self) -> bool:
        """Whether a record of this epoch is committed."""
        return self.high_watermark > self.epoch_start_offset

    def note_fetch(self, request: FetchRequest, *, end_offset: int, now_ms: int) -> None:
        """Takes how far a replica is; the leader's log ends at `end_offset`."""
        fetched_to = request.fetch_offset
        known = self.progress.get(request.source)
        if known is None:
            known = self.progress[request.source] = Progress(fetched_to, now_ms, -1)
        known.end_offset = fetched_to
        known.fetched_ms = now_ms
        if fetched_to >= end_offset:
            known.caught_up_ms = now_ms

    def advance(self, voters: VoterSet, *, durable_offset: int) -> bool:
        """Moves the high watermark; True if it has moved. `durable_offset` is the leader's own."""
        ends = {key: progress.end_offset for key, progress in self.progress.items()}
        ends[self.key] = durable_offset
        reached = voters.majority_offset(ends)
        if reached <= self.epoch_start_offset or reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def silent(self, voters: VoterSet, *, since_ms: int) -> list[ReplicaKey]:
        """The other voters that have not fetched since a moment, or never in this epoch."""
        return [
            key
            for key in voters.others(self.key)
            if key not in self.progress or self.progress[key].fetched_ms < since_ms
        ]

    def quorum_deadline_ms(self, voters: VoterSet, *, timeout_ms: int) -> int | None:
        """When the leader resigns unless more voters fetch; None if it needs no other voter."""
        needed = voters.majority - (self.key in voters)
        if needed == 0:
            return None
        fetched = sorted(
            (
                self.progress[key].fetched_ms if key in self.progress else self.began_ms
                for key in voters.others(self.key)
            ),
            reverse=True,
        )
        return max(fetched[needed - 1], self.began_ms) + timeout_ms

    def successors(self, voters: VoterSet) -> tuple[int, ...]:
        """The other voters' broker ids, the longest log first."""
        ends = {
            key: self.progress[key].end_offset if key in self.progress else -1
            for key in voters.others(self.key)
        }
        return tuple(key.broker_id for key in sorted(ends, key=lambda key: -ends[key]))

    def ready(self, *, end_offset: int) -> list[FetchRequest]:
        """Takes out the parked fetches that have something to tell now."""
        return self._take(
            key
            for key, parked in self.parked.items()
            if parked.request.fetch_offset < end_offset
            or parked.request.high_watermark < self.high_watermark
        )

    def due(self, now_ms: int) -> list[FetchRequest]:
        """Takes out the parked fetches whose time is over."""
        return self._take(k for k, parked in self.parked.items() if parked.deadline_ms <= now_ms)

    def _take(self, keys: Iterable[ReplicaKey]) -> list[FetchRequest]:
        return [self.parked.pop(key).request for key in list(keys)]
