"""How far a follower is, as its leader knows it."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.replication.messages import UNKNOWN_OFFSET, FetchPosition

NEVER_MS = -(1 << 62)
"""Before every moment, however long a follower may lag."""


@dataclass(slots=True)
class Progress:
    """One follower in one leader epoch.

    Its log agrees with the leader's before `end_offset` and is as durable there as the topic
    demands; `UNKNOWN_OFFSET` until its first fetch, which came from the process `broker_epoch` over
    the connection `session`. `caught_up_ms` is the last moment at which it
    had everything that the leader had: for a replica in sync, from the election on, and `NEVER_MS`
    for another one.
    """

    caught_up_ms: int
    broker_epoch: int = -1
    session: int = -1
    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    _fetched_ms: int = -1
    _leader_end_offset: int = 0

    def note_fetch(
        self,
        position: FetchPosition,
        broker_epoch: int,
        session: int,
        *,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        """Takes a position that agrees with the leader's log.

        A follower that always fetches is always a little behind. It was caught up at its fetch
        before if it has now all that the leader had then (KIP-16).
        """
        is_same = broker_epoch == self.broker_epoch
        if position.fetch_offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif is_same and self._fetched_ms >= 0 and position.fetch_offset >= self._leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.broker_epoch = broker_epoch
        self.session = session
        self.end_offset = position.fetch_offset
        self.log_start_offset = position.log_start_offset
        self._fetched_ms = now_ms
        self._leader_end_offset = leader_end_offset

    def note_append(self, *, end_before: int, now_ms: int) -> None:
        """The leader's log has grown from `end_before` on: until now the follower may have had
        everything, however long ago it said so."""
        if self.end_offset >= end_before:
            self.caught_up_ms = now_ms

    def is_behind(self, leader_end_offset: int) -> bool:
        """Whether it lacks something that the leader has."""
        return self.end_offset < leader_end_offset
