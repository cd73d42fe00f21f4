"""The checkpoint: one small file per partition that says how much of the log is known good.

Owns its format and its atomic replacement. Refuses to know how it is used: `recovery` does. It is
written only after everything it speaks of is durable, so it may be old and is never wrong. One
that does not pass its CRC counts as missing, and recovery then reads the whole log.

    byte  0      4         6       8          12
          +------+---------+-------+----------+------------------------------------------+
          | MRCP | version | flags | CRC-32C  | the rest, covered by the CRC:            |
          |      | u16     | u16   | u32      | fixed fields, closed segments, producers |
          +------+---------+-------+----------+------------------------------------------+
                             bit 0: written by a clean shutdown

    fixed fields    start offset i64, recovery offset i64, active segment's base offset i64,
                    position i64, its max timestamp i64, its index entries i32, segment count i32,
                    clean up to offset i64, first delete horizon i64 or -1
    closed segment  base offset i64, size i64 bytes, max timestamp i64, generation i32
    producers       see producers.Producers.encode

Big-endian throughout.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

import crc32c

from millrace_server.environment.seams import Disk
from millrace_server.log.cleanliness import NOT_CLEAN, Cleanliness
from millrace_server.log.producers import Producers

CHECKPOINT_NAME: Final = "checkpoint"
TEMPORARY_NAME: Final = "checkpoint.tmp"

_MAGIC: Final = b"MRCP"
_VERSION: Final = 2
_CLEAN_BIT: Final = 1
_PREFIX = struct.Struct(">4sHHI")
_FIXED = struct.Struct(">qqqqqiiqq")
_SEGMENT = struct.Struct(">qqqi")


class ClosedSegment(NamedTuple):
    """A segment that is durable, has its true size, and will not change.

    `generation` is how often it was cleaned: the one of that base offset which is in force.
    """

    base_offset: int
    size_bytes: int
    max_timestamp: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is durable: `start_offset <= recovery_offset`, all of it before `position`.

    `position` is where `recovery_offset` begins or will begin in the segment `active_base_offset`;
    `index_entries` of its index are saved. `closed` are the segments before it, in order.
    """

    start_offset: int
    recovery_offset: int
    active_base_offset: int
    position: int
    max_timestamp: int
    index_entries: int
    closed: tuple[ClosedSegment, ...]
    producers: bytes
    is_clean: bool = False
    cleanliness: Cleanliness = NOT_CLEAN

    def encode(self) -> bytes:
        """Returns the file's content."""
        body = b"".join(
            (
                _FIXED.pack(
                    self.start_offset,
                    self.recovery_offset,
                    self.active_base_offset,
                    self.position,
                    self.max_timestamp,
                    self.index_entries,
                    len(self.closed),
                    self.cleanliness.end_offset,
                    self.cleanliness.horizon_ms,
                ),
                *(_SEGMENT.pack(*segment) for segment in self.closed),
                self.producers,
            )
        )
        flags = _CLEAN_BIT if self.is_clean else 0
        return _PREFIX.pack(_MAGIC, _VERSION, flags, crc32c.crc32c(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint | None:
        """Reads a file's content; None if it is not a whole checkpoint of this version."""
        if len(data) < _PREFIX.size + _FIXED.size:
            return None
        magic, version, flags, crc = _PREFIX.unpack_from(data)
        body = data[_PREFIX.size :]
        if magic != _MAGIC or version != _VERSION or crc != crc32c.crc32c(body):
            return None
        start, recovery, active, position, max_timestamp, entries, count, *clean = (
            _FIXED.unpack_from(body)
        )
        end = _FIXED.size + count * _SEGMENT.size
        if count < 0 or end > len(body) or not Producers.can_decode(body[end:]):
            return None
        return cls(
            start_offset=start,
            recovery_offset=recovery,
            active_base_offset=active,
            position=position,
            max_timestamp=max_timestamp,
            index_entries=entries,
            closed=tuple(map(ClosedSegment._make, _SEGMENT.iter_unpack(body[_FIXED.size : end]))),
            producers=body[end:],
            is_clean=bool(flags & _CLEAN_BIT),
            cleanliness=Cleanliness(*clean),
        )

    def restore_producers(self) -> Producers:
        """Returns the producers as they were at `recovery_offset`."""
        return Producers.decode(self.producers)


def read_checkpoint(disk: Disk, directory: str) -> Checkpoint | None:
    """Returns the checkpoint of a partition; None if it is missing or broken."""
    path = f"{directory}/{CHECKPOINT_NAME}"
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return Checkpoint.decode(file.pread(file.size(), 0))
    finally:
        file.release()


def write_checkpoint(disk: Disk, directory: str, checkpoint: Checkpoint) -> None:
    """Replaces the checkpoint and makes it durable. Blocking; raises `OSError`."""
    temporary = f"{directory}/{TEMPORARY_NAME}"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True, write=True)
    try:
        file.pwrite(checkpoint.encode(), 0)
        file.sync()
    finally:
        file.release()
    disk.rename(temporary, f"{directory}/{CHECKPOINT_NAME}")
    disk.sync_directory(directory)
