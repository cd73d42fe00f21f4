"""Leader epochs: which leader wrote which part of a log, and the file that keeps it.

Owns the table, its rules and its format. Refuses to know batches and segments. A follower compares
its table with the leader's and truncates to where both agree; a high watermark alone is not enough
(KIP-101, KIP-279, KIP-320). Pure, but for the two functions that read and write the file.

    epoch          0          3                  4
    offsets   0 ───────► 120 ───────► 200 ────────────► log end

The table is durable before a record of its last epoch counts as durable, and before a leader serves
in that epoch. Recovery adds the epochs of the batches behind the checkpoint.

    byte  0                12
          +----------------+---------------------------------+
          | checkpoint_file| (epoch i32, start offset i64)*  |    MREP, version 2
          +----------------+---------------------------------+
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint_file import CheckpointFormat, read_file, replace_file

EPOCHS_NAME: Final = "leader-epoch-checkpoint"
NO_EPOCH: Final = -1

_FORMAT: Final = CheckpointFormat(b"MREP", 2)
_ENTRY = struct.Struct(">iq")


class EpochStart(NamedTuple):
    """The leader of `epoch` wrote from `start_offset` on."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The records of `epoch`, and of all before it, end before `end_offset`."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class EpochTable:
    """Invariant: both columns of `entries` rise strictly. A changed table is a new one."""

    entries: tuple[EpochStart, ...] = ()

    @property
    def latest(self) -> int:
        """The last epoch, `NO_EPOCH` if there is none."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    def begin(self, epoch: int, start_offset: int) -> EpochTable:
        """The table after the first record, or the first leader, of `epoch`.

        An earlier epoch that would begin there or later has no records: it goes. Raises
        `ValueError` if `epoch` is older than the latest.
        """
        if epoch == self.latest:
            return self
        if epoch < self.latest:
            raise ValueError(f"leader epoch {epoch} is older than the log's, {self.latest}")
        kept = [entry for entry in self.entries if entry.start_offset < start_offset]
        return EpochTable((*kept, EpochStart(epoch, start_offset)))

    def end_offset_for(self, epoch: int, *, log_end: int) -> EpochEnd | None:
        """The largest epoch that is not above `epoch`, and where its records end.

        None if the table begins above `epoch`.
        """
        end_offset = log_end
        for entry in reversed(self.entries):
            if entry.epoch <= epoch:
                return EpochEnd(entry.epoch, end_offset)
            end_offset = entry.start_offset
        return None

    def epoch_before(self, offset: int) -> int:
        """The epoch of the last record before `offset`, `NO_EPOCH` if the table has none there."""
        starts = (entry.epoch for entry in reversed(self.entries) if entry.start_offset < offset)
        return next(starts, NO_EPOCH)

    def truncate_to(self, end_offset: int) -> EpochTable:
        """The table of a log that ends at `end_offset`: epochs that begin there or later go."""
        return EpochTable(tuple(e for e in self.entries if e.start_offset < end_offset))

    def trim_to(self, start_offset: int) -> EpochTable:
        """The table of a log that begins at `start_offset`: epochs that end there or before go."""
        kept = [
            entry
            for entry, following in pairwise(self.entries)
            if following.start_offset > start_offset
        ]
        if len(kept) + 1 >= len(self.entries):
            return self
        return EpochTable((*kept, self.entries[-1]))

    def encode(self) -> bytes:
        """Returns the file's content."""
        return _FORMAT.encode(b"".join(_ENTRY.pack(*entry) for entry in self.entries))

    @classmethod
    def decode(cls, data: bytes) -> EpochTable | None:
        """Reads a file's content; None if it is not a whole table of this version."""
        content = _FORMAT.decode(data)
        if content is None or len(content.body) % _ENTRY.size:
            return None
        return cls(tuple(map(EpochStart._make, _ENTRY.iter_unpack(content.body))))


FIRST_EPOCH: Final = EpochTable((EpochStart(0, 0),))
"""The table of a log in which no record was written. Epochs begin with 0."""


def read_epochs(disk: Disk, directory: str) -> EpochTable | None:
    """Returns the table of a log; None if it is missing or broken. Raises `OSError`."""
    data = read_file(disk, f"{directory}/{EPOCHS_NAME}")
    return None if data is None else EpochTable.decode(data)


def write_epochs(disk: Disk, directory: str, table: EpochTable) -> None:
    """Replaces the table and makes it durable, with its name. Blocking; raises `OSError`."""
    replace_file(disk, f"{directory}/{EPOCHS_NAME}", table.encode())
