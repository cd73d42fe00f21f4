"""Where a follower's log leaves out offsets, and the file that keeps it.

Owns one number, the end of the last gap, and its file. Refuses to know batches. A leader gives its
offsets without gaps, so a batch that does not continue the one before is corrupt. Compaction leaves
offsets out, so a follower of a compacted leader takes over batches with gaps, in segments that it
has not compacted itself.

    offsets    0 ── 40   55 ── 70   90 ─────────────► log end
                       gap        gap
    gap end                        90: no offset is missing from here on

A segment that begins before the gap end is read like a compacted one. The file is written before
the first batch behind a gap, so it is there after a kill, and the flush syncs it before that batch
counts as durable, so it is there after a power cut. It never goes back: a gap that is truncated
away only leaves a segment that is checked less strictly. A file that is broken means that there may
be gaps anywhere.

    byte  0                12
          +----------------+-------------+
          | checkpoint_file| gap end i64 |    MRGP, version 1, written over in place:
          +----------------+-------------+    it lies in one sector
"""

from __future__ import annotations

import struct
from typing import Final

from millrace_server.environment.seams import Disk
from millrace_server.log.checkpoint_file import CheckpointFormat, read_file

GAPS_NAME: Final = "offset-gaps"
NO_GAP: Final = 0
GAPS_ANYWHERE: Final = 2**63 - 1

_FORMAT: Final = CheckpointFormat(b"MRGP", 1)
_BODY = struct.Struct(">q")


def decode_gap_end(data: bytes) -> int | None:
    """Reads a file's content; None if it is not a whole one of this version."""
    content = _FORMAT.decode(data)
    if content is None or len(content.body) != _BODY.size:
        return None
    gap_end: int = _BODY.unpack(content.body)[0]
    return gap_end


def encode_gap_end(gap_end: int) -> bytes:
    """Returns the file's content."""
    return _FORMAT.encode(_BODY.pack(gap_end))


def read_gap_end(disk: Disk, directory: str) -> int:
    """Returns where the last gap of a log ends. Raises `OSError`."""
    data = read_file(disk, f"{directory}/{GAPS_NAME}")
    if data is None:
        return NO_GAP
    gap_end = decode_gap_end(data)
    return GAPS_ANYWHERE if gap_end is None else gap_end


def write_gap_end(disk: Disk, directory: str, gap_end: int) -> None:
    """Writes the file, or over it, and does not sync it. Raises `OSError`."""
    path = f"{directory}/{GAPS_NAME}"
    file = disk.open(path, create=not disk.exists(path), write=True)
    try:
        file.pwrite(encode_gap_end(gap_end), 0)
    finally:
        file.release()


def sync_gap_end(disk: Disk, directory: str) -> None:
    """Makes the file durable, with its name. Blocking; raises `OSError`."""
    file = disk.open(f"{directory}/{GAPS_NAME}")
    try:
        file.sync()
    finally:
        file.release()
    disk.sync_directory(directory)
