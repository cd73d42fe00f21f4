"""The log of one replica in memory, with a disk that forgets what was not synced."""

from __future__ import annotations

from typing import NamedTuple

from millrace_server.log.epochs import FIRST_EPOCH, EpochTable


class Entry(NamedTuple):
    """A batch of one record: the epoch of its leader, and a value."""

    epoch: int
    value: str


class SyncTicket(NamedTuple):
    """What a sync makes durable; void if the log was cut in the meantime."""

    end_offset: int
    epochs: EpochTable
    cuts: int


class ReplicaLog:
    """Implements `LogView`. `entries[i]` has offset `start_offset + i`."""

    def __init__(self, *, is_synced: bool) -> None:
        """`is_synced`: the topic's durability is `fsync`, else `os`."""
        self.is_synced = is_synced
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.table = FIRST_EPOCH
        """Epochs that end before the start stay in it until a cut."""
        self.durable_offset = 0
        self.durable_epochs = FIRST_EPOCH
        self._cuts = 0

    @property
    def durable_start_offset(self) -> int:
        return self.start_offset

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def acked_offset(self) -> int:
        return self.durable_offset if self.is_synced else self.end_offset

    @property
    def epochs(self) -> EpochTable:
        return self.table.trim_to(self.start_offset)

    @property
    def durable_epoch(self) -> int:
        return self.durable_epochs.latest

    def begin_epoch(self, epoch: int) -> None:
        self.table = self.table.begin(epoch, self.end_offset)

    def end_epoch(self) -> None:
        """Forgets, durably, the epochs in which no record was written."""
        self._cuts += 1
        self.table = _or_first(self.table.truncate_to(self.end_offset))
        self.durable_epochs = _or_first(self.durable_epochs.truncate_to(self.durable_offset))

    def append(self, entry: Entry) -> None:
        """Raises `ValueError` for an epoch before that of the table, as a real log does."""
        self.table = self.table.begin(entry.epoch, self.end_offset)
        self.entries.append(entry)

    def read(self, offset: int, count: int) -> tuple[Entry, ...]:
        return tuple(self.entries[offset - self.start_offset :][:count])

    def begin_sync(self) -> SyncTicket:
        return SyncTicket(self.end_offset, self.table, self._cuts)

    def end_sync(self, ticket: SyncTicket) -> None:
        if ticket.cuts == self._cuts:
            self.durable_offset = max(self.durable_offset, ticket.end_offset)
            if ticket.epochs.latest >= self.durable_epochs.latest:
                self.durable_epochs = ticket.epochs

    def truncate_to(self, end_offset: int) -> None:
        """Takes off the tail, and the epochs that have no record then; all of it durably."""
        del self.entries[end_offset - self.start_offset :]
        self._replace_epochs(self.table.truncate_to(end_offset))

    def reset(self, start_offset: int) -> None:
        """An empty log that begins at `start_offset`, durably."""
        self.entries = []
        self.start_offset = start_offset
        self._replace_epochs(EpochTable())

    def advance_start(self, offset: int) -> None:
        del self.entries[: offset - self.start_offset]
        self.start_offset = offset

    def lose_what_is_not_durable(self, kept: int) -> bool:
        """A power cut: `kept` entries behind the durable end are on the disk by luck.

        True if something is gone. Recovery finds the epochs of the entries behind the durable end.
        """
        end_offset = max(self.start_offset, min(self.durable_offset + kept, self.end_offset))
        behind = self.read(max(self.durable_offset, self.start_offset), kept)
        is_lossy = end_offset < self.end_offset
        first = end_offset - len(behind)
        del self.entries[end_offset - self.start_offset :]
        epochs = self.durable_epochs.truncate_to(end_offset).trim_to(self.start_offset)
        for offset, entry in enumerate(behind, first):
            epochs = epochs.begin(entry.epoch, offset)
        self._replace_epochs(epochs)
        return is_lossy

    def recover(self) -> None:
        """A start after a kill: all that was written is there, and is synced."""
        self.end_sync(self.begin_sync())

    def _replace_epochs(self, epochs: EpochTable) -> None:
        self._cuts += 1
        is_fresh = self.end_offset == 0 and not epochs.entries
        self.table = self.durable_epochs = FIRST_EPOCH if is_fresh else epochs
        self.durable_offset = self.end_offset


def _or_first(epochs: EpochTable) -> EpochTable:
    return epochs if epochs.entries else FIRST_EPOCH
