"""The small files that a log keeps of itself: one header for all, and their atomic replacement.

Owns the header and the order of the steps of a replacement. Refuses to know what a body means.
A file that is short, that another version wrote or that fails its CRC counts as missing.

    byte  0       4         6       8          12
          +-------+---------+-------+----------+--------------------+
          | magic | version | flags | CRC-32C  | body               |   big-endian
          |       | u16     | u16   | u32      |                    |
          +-------+---------+-------+----------+--------------------+
                            the CRC covers the flags and the body

`replace_file` leaves the old content or the new one, whatever happens meanwhile.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

import crc32c

from millrace_server.environment.seams import Disk

TEMPORARY_SUFFIX: Final = ".tmp"
_HEADER = struct.Struct(">4sHHI")
_FLAGS = struct.Struct(">H")
HEADER_SIZE: Final = _HEADER.size


class Content(NamedTuple):
    """What a file says."""

    flags: int
    body: bytes


@dataclass(frozen=True, slots=True)
class CheckpointFormat:
    """One kind of file, by its magic number, and the version that is written and read."""

    magic: bytes
    version: int

    def encode(self, body: bytes, *, flags: int = 0) -> bytes:
        """Returns the file's content."""
        return _HEADER.pack(self.magic, self.version, flags, _crc(flags, body)) + body

    def decode(self, data: bytes) -> Content | None:
        """Reads a file's content; None if it is not whole, or not of this kind and version."""
        if len(data) < HEADER_SIZE:
            return None
        magic, version, flags, crc = _HEADER.unpack_from(data)
        body = data[HEADER_SIZE:]
        if (magic, version) != (self.magic, self.version) or crc != _crc(flags, body):
            return None
        return Content(flags, body)


def _crc(flags: int, body: bytes) -> int:
    crc: int = crc32c.crc32c(body, crc32c.crc32c(_FLAGS.pack(flags)))
    return crc


def read_file(disk: Disk, path: str) -> bytes | None:
    """Returns all of a file, None if it is not there. Raises `OSError`."""
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.release()


def create_file(disk: Disk, path: str, data: bytes) -> None:
    """Makes a file and its content durable, but not its name. Blocking; raises `OSError`."""
    file = disk.open(path, create=True, write=True)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.release()


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Makes `data` the content of a file, durably, with its name. Blocking; raises `OSError`."""
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.remove(temporary)
    create_file(disk, temporary, data)
    disk.rename(temporary, path)
    disk.sync_directory(path.rpartition("/")[0])
