"""A metadata log in memory, with a disk that forgets what was not synced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from millrace_server.log.epochs import FIRST_EPOCH, EpochEnd, EpochTable
from millrace_server.raft.messages import LogPosition, SnapshotId
from millrace_server.raft.voters import VoterHistory, VoterSet


class Entry(NamedTuple):
    """A record: the epoch of its leader, and a value or a set of voters."""

    epoch: int
    value: str
    voters: VoterSet | None = None


@dataclass(frozen=True)
class Snapshot:
    """What the log says before `snapshot_id.end_offset`."""

    snapshot_id: SnapshotId
    entries: tuple[Entry, ...]
    voters: VoterSet


class ReplicaLog:
    """Implements `LogView`. `entries[i]` has offset `start_offset + i`."""

    def __init__(self, first_voters: VoterSet) -> None:
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.epochs: EpochTable = FIRST_EPOCH
        self.durable_offset = 0
        self.snapshot: Snapshot | None = None
        self.first_voters = first_voters

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def position(self) -> LogPosition:
        epoch = max(self.epochs.latest, 0)
        if not self.entries and self.snapshot is not None:
            epoch = max(epoch, self.snapshot.snapshot_id.epoch)
        return LogPosition(epoch, self.end_offset)

    def end_offset_for(self, epoch: int) -> EpochEnd | None:
        return self.epochs.end_offset_for(epoch, log_end=self.end_offset)

    def newest_snapshot(self) -> SnapshotId | None:
        return None if self.snapshot is None else self.snapshot.snapshot_id

    def history(self) -> VoterHistory:
        """The voter sets that snapshot and log hold."""
        history = VoterHistory(self.snapshot.voters if self.snapshot else self.first_voters)
        for offset, entry in enumerate(self.entries, self.start_offset):
            below = self.snapshot is not None and offset < self.snapshot.snapshot_id.end_offset
            if entry.voters is not None and not below:
                history = history.add(offset, entry.voters)
        return history

    def begin_epoch(self, epoch: int) -> None:
        self.epochs = self.epochs.begin(epoch, self.end_offset)

    def append(self, entry: Entry) -> int:
        """Returns the offset of the entry."""
        self.begin_epoch(entry.epoch)
        self.entries.append(entry)
        return self.end_offset - 1

    def read(self, offset: int, count: int) -> list[Entry]:
        return self.entries[offset - self.start_offset :][:count]

    def truncate_to(self, end_offset: int) -> None:
        del self.entries[end_offset - self.start_offset :]
        epochs = self.epochs.truncate_to(end_offset)
        self.epochs = epochs if epochs.entries else FIRST_EPOCH
        self.durable_offset = min(self.durable_offset, end_offset)

    def all_entries(self) -> list[Entry]:
        """Everything from offset 0 on, from the snapshot and the log."""
        before = self.snapshot.entries[: self.start_offset] if self.snapshot else ()
        return [*before, *self.entries]

    def take_snapshot(self, end_offset: int, voters: VoterSet, *, keep: int) -> None:
        """Makes a snapshot of what is committed; the log keeps `keep` entries before its end."""
        entries = self.all_entries()[:end_offset]
        snapshot_id = SnapshotId(end_offset, entries[-1].epoch)
        self.snapshot = Snapshot(snapshot_id, tuple(entries), voters)
        self._trim_to(max(self.start_offset, end_offset - keep))

    def install(self, snapshot: Snapshot) -> None:
        """Begins the log behind a snapshot."""
        end_offset, epoch = snapshot.snapshot_id
        self.snapshot = snapshot
        self.entries = []
        self.start_offset = self.durable_offset = end_offset
        self.epochs = EpochTable().begin(epoch, end_offset)

    def lose_what_is_not_durable(self, kept: int) -> None:
        """A power cut: up to `kept` entries behind the durable end are on the disk by luck."""
        self.truncate_to(min(self.durable_offset + kept, self.end_offset))
        self.durable_offset = self.end_offset

    def _trim_to(self, start_offset: int) -> None:
        del self.entries[: start_offset - self.start_offset]
        self.start_offset = start_offset
        self.epochs = self.epochs.trim_to(start_offset)
