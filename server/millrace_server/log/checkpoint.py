"""The checkpoint: one small file per partition that says how much of the log is known good.

Owns its format. Refuses to know how it is used: `recovery` does. It is written only after
everything it speaks of is durable, so it may be old and is never wrong. Without one recovery reads
the whole log.

    byte  0                12
          +----------------+------------------------------------------+
          | checkpoint_file| fixed fields, closed segments, producers |    MRCP, version 3
          +----------------+------------------------------------------+    flag 0: clean shutdown

    fixed fields    start offset i64, end offset i64, active segment's base offset i64,
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

from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint_file import CheckpointFormat, read_file, replace_file
from millrace_server.log.cleanliness import NOT_CLEAN, Cleanliness
from millrace_server.log.producers import Producers
from millrace_server.log.segment import Segment

CHECKPOINT_NAME: Final = "checkpoint"

_FORMAT: Final = CheckpointFormat(b"MRCP", 3)
_CLEAN_BIT: Final = 1
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

    @classmethod
    def of(cls, segment: Segment) -> ClosedSegment:
        """The entry of a segment."""
        return cls(
            segment.base_offset, segment.size_bytes, segment.max_timestamp, segment.generation
        )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is durable: `start_offset <= end_offset`, all of it before `position`.

    `position` is where `end_offset` begins or will begin in the segment `active_base_offset`;
    `index_entries` of its index are saved. `closed` are the segments before it, in order.
    """

    start_offset: int
    end_offset: int
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
                    self.end_offset,
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
        return _FORMAT.encode(body, flags=_CLEAN_BIT if self.is_clean else 0)

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint | None:
        """Reads a file's content; None if it is not a whole checkpoint of this version."""
        content = _FORMAT.decode(data)
        if content is None or len(content.body) < _FIXED.size:
            return None
        body = content.body
        start, end_offset, active, position, max_timestamp, entries, count, *clean = (
            _FIXED.unpack_from(body)
        )
        end = _FIXED.size + count * _SEGMENT.size
        if count < 0 or end > len(body) or not Producers.can_decode(body[end:]):
            return None
        return cls(
            start_offset=start,
            end_offset=end_offset,
            active_base_offset=active,
            position=position,
            max_timestamp=max_timestamp,
            index_entries=entries,
            closed=tuple(map(ClosedSegment._make, _SEGMENT.iter_unpack(body[_FIXED.size : end]))),
            producers=body[end:],
            is_clean=bool(content.flags & _CLEAN_BIT),
            cleanliness=Cleanliness(*clean),
        )

    def restore_producers(self) -> Producers:
        """Returns the producers as they were at `end_offset`."""
        return Producers.decode(self.producers)


def read_checkpoint(disk: Disk, directory: str) -> Checkpoint | None:
    """Returns the checkpoint of a partition; None if it is missing or broken. Raises `OSError`."""
    data = read_file(disk, f"{directory}/{CHECKPOINT_NAME}")
    return None if data is None else Checkpoint.decode(data)


def write_checkpoint(disk: Disk, directory: str, checkpoint: Checkpoint) -> None:
    """Replaces the checkpoint and makes it durable. Blocking; raises `OSError`."""
    replace_file(disk, f"{directory}/{CHECKPOINT_NAME}", checkpoint.encode())
