"""The recovery point: a few bytes per partition that say how far the log has been synced.

Owns its format and how it is written. Refuses to know how it is used: `recovery` does. The flush
writes it over itself after each sync that moved the durable offset, before an append is acked, with
one write and no sync of its own, except where a log is refused (`sync_recovery_point`):

- after the end of the process it is exact, since the page cache outlives the process;
- after a power cut it may be old, missing or torn. Torn fails its CRC and counts as missing.

It never names more than a completed sync has covered, and that holds for every one that was ever
written, so that none can come back and be wrong: recovery cuts nothing before the recovery point it
reads, and what a sync has covered is there for that recovery to find. A sync that fails moves no
recovery point; a start after it reads that of the sync before. Once a checkpoint reaches as far, as
it does after a shutdown in order, the recovery point says nothing more and is ignored; so it is
when retention has deleted what it names.

The file stays open while the log is being written: beside a sync of 124 microseconds a write
takes 1.5, and one that opens the file 12. An idle log closes it, so that thousands of quiet
partitions hold no descriptor for it.

    byte  0                12           20            28         36
          +----------------+------------+-------------+----------+
          | checkpoint_file| end offset | base offset | position |    MRRP, version 1
          |                | i64        | i64         | i64      |
          +----------------+------------+-------------+----------+

It lies in one sector, which a disk writes whole or not at all. Source: Kafka's
`recovery-point-offset-checkpoint`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from millrace_server.environment.seams import Disk, File
from millrace_server.log.checkpoint_file import HEADER_SIZE, CheckpointFormat, read_file

RECOVERY_POINT_NAME: Final = "recovery-point"

_FORMAT: Final = CheckpointFormat(b"MRRP", 1)
_BODY = struct.Struct(">qqq")
RECOVERY_POINT_SIZE: Final = HEADER_SIZE + _BODY.size


class RecoveryPoint(NamedTuple):
    """All before `end_offset` is durable; it ends at `position` of the segment `base_offset`."""

    end_offset: int
    base_offset: int
    position: int

    def encode(self) -> bytes:
        """Returns the file's content, `RECOVERY_POINT_SIZE` bytes."""
        return _FORMAT.encode(_BODY.pack(*self))

    @classmethod
    def decode(cls, data: bytes) -> RecoveryPoint | None:
        """Reads a file's content; None if it is not a whole recovery point of this version."""
        content = _FORMAT.decode(data[:RECOVERY_POINT_SIZE])
        if content is None or len(content.body) != _BODY.size:
            return None
        return cls._make(_BODY.unpack(content.body))


def read_recovery_point(disk: Disk, directory: str) -> RecoveryPoint | None:
    """Returns the recovery point of a partition; None if it is missing or broken. `OSError`."""
    data = read_file(disk, f"{directory}/{RECOVERY_POINT_NAME}")
    return None if data is None else RecoveryPoint.decode(data)


def sync_recovery_point(disk: Disk, directory: str) -> None:
    """Makes the recovery point that is there durable, if there is one. Blocking; `OSError`.

    What was refused because of it stays refused when the power is cut: with an older one the next
    start would take the damage for a torn tail.
    """
    path = f"{directory}/{RECOVERY_POINT_NAME}"
    if not disk.exists(path):
        return
    file = disk.open(path)
    try:
        file.sync()
    finally:
        file.release()
    disk.sync_directory(directory)


class RecoveryPointFile:
    """The file of one log: open from a `write` until `close`, or until the log is idle."""

    __slots__ = ("_directory", "_disk", "_file", "_is_used")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self._is_used = False

    def write(self, point: RecoveryPoint) -> None:
        """Writes over the one before, and does not sync it. Raises `OSError`."""
        if self._file is None:
            path = f"{self._directory}/{RECOVERY_POINT_NAME}"
            self._file = self._disk.open(path, create=not self._disk.exists(path), write=True)
        self._is_used = True
        self._file.pwrite(point.encode(), 0)

    def close_if_unused(self) -> None:
        """Closes the file if nothing was written since the last call; not beside a `write`."""
        if self._is_used:
            self._is_used = False
        else:
            self.close()

    def close(self) -> None:
        """Closes the file; not beside a `write`."""
        if self._file is not None:
            self._file.release()
            self._file = None
