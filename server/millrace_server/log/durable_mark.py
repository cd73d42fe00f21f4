"""The durable mark: a few bytes per partition that say how far the log has been synced.

Owns its format and how it is written. Refuses to know how it is used: `recovery` does. The flush
writes it over itself after each sync that moved the durable offset, before anybody is told, with
one write and no sync of its own, except where a log is refused (`keep_mark`):

- after the end of the process it is exact, since the page cache outlives the process;
- after a power cut it may be old, missing or torn. Torn fails its CRC and counts as missing.

It never names more than a completed sync has covered, and that holds for every mark that was ever
written, so that none can come back and be wrong: recovery cuts nothing before the mark it reads,
and what a sync has covered is there for that recovery to find. A sync that fails moves no mark; a
start after it reads the mark of the sync before. Once a checkpoint reaches as far, as it does
after a shutdown in order, the mark says nothing more and is ignored; so it is when retention has
deleted what it names.

The file stays open while the log is being written: beside a sync of 124 microseconds a write
takes 1.5, and one that opens the file 12. A log that rests lets it go, so that thousands of quiet
partitions hold no descriptor for it.

    byte  0      4         8          12           20            28         36
          +------+---------+----------+------------+-------------+----------+
          | MRDM | version | CRC-32C  | end offset | base offset | position |
          |      | u32     | u32      | i64        | i64         | i64      |
          +------+---------+----------+------------+-------------+----------+
                                      |<------- covered by the CRC -------->|

Big-endian. It lies in one sector, which a disk writes whole or not at all.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import crc32c

from millrace_server.environment.seams import Disk, File

MARK_NAME: Final = "durable"

_MAGIC: Final = b"MRDM"
_VERSION: Final = 1
_PREFIX = struct.Struct(">4sII")
_BODY = struct.Struct(">qqq")
MARK_SIZE: Final = _PREFIX.size + _BODY.size


class DurableMark(NamedTuple):
    """All before `end_offset` is durable; it ends at `position` of the segment `base_offset`."""

    end_offset: int
    base_offset: int
    position: int

    def encode(self) -> bytes:
        """Returns the file's content, `MARK_SIZE` bytes."""
        body = _BODY.pack(*self)
        return _PREFIX.pack(_MAGIC, _VERSION, crc32c.crc32c(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> DurableMark | None:
        """Reads a file's content; None if it is not a whole mark of this version."""
        if len(data) < MARK_SIZE:
            return None
        magic, version, crc = _PREFIX.unpack_from(data)
        body = data[_PREFIX.size : MARK_SIZE]
        if magic != _MAGIC or version != _VERSION or crc != crc32c.crc32c(body):
            return None
        return cls._make(_BODY.unpack(body))


def read_mark(disk: Disk, directory: str) -> DurableMark | None:
    """Returns the mark of a partition; None if it is missing or broken. Raises `OSError`."""
    path = f"{directory}/{MARK_NAME}"
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return DurableMark.decode(file.pread(MARK_SIZE, 0))
    finally:
        file.release()


def keep_mark(disk: Disk, directory: str) -> None:
    """Makes the mark that is there durable, if there is one. Blocking; raises `OSError`.

    What was refused because of it stays refused when the power is cut: an older mark would have
    the next start take the damage for a torn tail.
    """
    path = f"{directory}/{MARK_NAME}"
    if not disk.exists(path):
        return
    file = disk.open(path)
    try:
        file.sync()
    finally:
        file.release()
    disk.sync_directory(directory)


class MarkFile:
    """The file of one log's mark: open from a `write` until `close`, or until the log rests."""

    __slots__ = ("_directory", "_disk", "_file", "_is_used")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self._is_used = False

    def write(self, mark: DurableMark) -> None:
        """Writes the mark over the one before, and does not sync it. Raises `OSError`."""
        if self._file is None:
            path = f"{self._directory}/{MARK_NAME}"
            self._file = self._disk.open(path, create=not self._disk.exists(path), write=True)
        self._is_used = True
        self._file.pwrite(mark.encode(), 0)

    def close_if_unused(self) -> None:
        """Lets the file go if nothing was written since the last call; not beside a `write`."""
        if self._is_used:
            self._is_used = False
        else:
            self.close()

    def close(self) -> None:
        """Lets the file go; not beside a `write`."""
        if self._file is not None:
            self._file.release()
            self._file = None
