"""The records of one partition on every replica, and what of them is committed.

A leader appends, followers copy, and the high watermark follows the ISR as the image has it. So the
model can say whether a leader that the controller elects has every committed record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millrace_server.metadata.image import PartitionRegistration

Entry = tuple[int, int]
"""The leader epoch, and a serial number."""


@dataclass(slots=True)
class Fetched:
    """How far a follower had fetched, in which leader epoch, and under which registration."""

    offset: int
    leader_epoch: int
    broker_epoch: int


@dataclass(slots=True)
class PartitionModel:
    """`logs` by broker id; the first `synced[broker]` entries of a log survive an unclean stop."""

    logs: dict[int, list[Entry]] = field(default_factory=dict)
    synced: dict[int, int] = field(default_factory=dict)
    fetched: dict[int, Fetched] = field(default_factory=dict)
    committed: list[Entry] = field(default_factory=list)

    def append(self, known: PartitionRegistration, serial: int, *, is_synced: bool) -> None:
        """The leader appends a record."""
        log = self.logs.setdefault(known.leader, [])
        log.append((known.leader_epoch, serial))
        self._note_synced(known.leader, is_synced=is_synced)

    def fetch(
        self, known: PartitionRegistration, follower: int, broker_epoch: int, *, is_synced: bool
    ) -> None:
        """The follower truncates what the leader does not have, and copies the rest."""
        leading = self.logs.setdefault(known.leader, [])
        self.logs[follower] = list(leading)
        self.synced[follower] = min(self.synced.get(follower, 0), len(leading))
        self._note_synced(follower, is_synced=is_synced)
        self.fetched[follower] = Fetched(len(leading), known.leader_epoch, broker_epoch)

    def is_caught_up(self, known: PartitionRegistration, follower: int) -> bool:
        """Whether the leader saw the follower fetch up to its end in this epoch."""
        seen = self.fetched.get(follower)
        if seen is None or seen.leader_epoch != known.leader_epoch:
            return False
        return seen.offset == len(self.logs.get(known.leader, ()))

    def commit(self, known: PartitionRegistration, *, min_isr: int) -> None:
        """The leader moves the high watermark, while its ISR is large enough (KIP-966)."""
        if len(known.isr) < min(min_isr, len(known.replicas)):
            return
        log = self.logs.get(known.leader, [])
        offsets = [len(log)]
        for member in known.isr:
            if member == known.leader:
                continue
            seen = self.fetched.get(member)
            is_of_epoch = seen is not None and seen.leader_epoch == known.leader_epoch
            offsets.append(seen.offset if seen is not None and is_of_epoch else 0)
        if min(offsets) > len(self.committed):
            self.committed = log[: min(offsets)]

    def stop_uncleanly(self, broker_id: int) -> None:
        """The broker is killed: what was not synced is gone."""
        log = self.logs.get(broker_id, [])
        del log[self.synced.get(broker_id, 0) :]

    def sync(self, broker_id: int) -> None:
        """The broker has synced what it has, as a clean stop does."""
        self._note_synced(broker_id, is_synced=True)

    def wipe(self, broker_id: int) -> None:
        """The broker's disk is lost."""
        self.logs.pop(broker_id, None)
        self.synced.pop(broker_id, None)

    def has_committed(self, broker_id: int) -> bool:
        """Whether a replica has every committed record."""
        return self.logs.get(broker_id, [])[: len(self.committed)] == self.committed

    def accept_loss(self, leader: int) -> None:
        """An election that may lose records: what the leader has is what was committed."""
        self.committed = self.logs.get(leader, [])[: len(self.committed)]

    def _note_synced(self, broker_id: int, *, is_synced: bool) -> None:
        if is_synced:
            self.synced[broker_id] = len(self.logs.get(broker_id, ()))
