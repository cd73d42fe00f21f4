"""Are these bytes what was appended? Asked of whole batches on their way from the disk.

Owns the walk over a run of batches that were there before: lengths, magic, CRC-32C, and that each
batch continues the one before, since no CRC covers a base offset. Refuses to know the caller, and
what is done with the answer. `check_batch` asks more, of bytes that a client sent; here a batch
was checked when it was appended, and its CRC says that it is the same.

For 16 KiB batches a check takes 0.17 s of CPU per GiB, for 1 KiB batches 0.5. It holds the GIL
for no longer than one window of batches at a time.
"""

from __future__ import annotations

import errno
import struct
from typing import Final, NamedTuple

import crc32c

from millrace_protocol.records import HEADER_SIZE, MAGIC
from millrace_server.environment.seams import ReadableFile
from millrace_server.log.errors import CorruptLog

_WINDOW_BYTES: Final = 256 * 1024
_FRONT: Final = struct.Struct(">qiibIhi")
"""Base offset, batch length, leader epoch, magic, CRC, attributes, last offset delta."""
_LENGTH_END: Final = 12
_CRC_START: Final = 21


class Boundary(NamedTuple):
    """Where a batch begins, or the log ends, and the offset of the first record there."""

    position: int
    offset: int


def check_batches(
    file: ReadableFile, start: Boundary, until: int, *, end_position: int, is_dense: bool = True
) -> Boundary:
    """Reads and checks batches from `start` on, until one ends at or behind `until`. Blocking.

    `end_position` is a boundary too: nothing behind it belongs to the log. With `is_dense` every
    batch continues the one before; without, a base offset that has grown is found at the batch
    behind it. Raises `CorruptLog` with position and offset of the first batch that is not as it
    was, or that the disk cannot read, and `OSError`.
    """
    position, offset = start
    unpack, checksum = _FRONT.unpack_from, crc32c.crc32c
    window, window_position = memoryview(b""), position
    try:
        while position < until:
            at = position - window_position
            if len(window) - at < _FRONT.size:
                left = end_position - position
                window = memoryview(file.pread(min(_WINDOW_BYTES, left), position))
                window_position, at = position, 0
                if len(window) < min(left, _FRONT.size) or left < HEADER_SIZE:
                    raise _corrupt(file, position, offset, "no whole batch where one was written")
            base_offset, batch_length, _, magic, crc, _, last_offset_delta = unpack(window, at)
            stop = position + _LENGTH_END + batch_length
            if magic != MAGIC or not position + HEADER_SIZE <= stop <= end_position:
                raise _corrupt(file, position, offset, "no batch header where one was written")
            found = checksum(window[at + _CRC_START : stop - window_position])
            while stop > window_position + len(window):
                window_position += len(window)
                size = min(_WINDOW_BYTES, end_position - window_position)
                window = memoryview(file.pread(size, window_position))
                if not window:
                    raise _corrupt(file, position, offset, "the file ends inside the batch")
                found = checksum(window[: stop - window_position], found)
            if found != crc:
                raise _corrupt(
                    file,
                    position,
                    offset,
                    f"CRC-32C is {found:#010x} and the batch says {crc:#010x}",
                )
            if base_offset < offset or (is_dense and base_offset != offset):
                raise _corrupt(
                    file, position, offset, f"offset {offset} is next, the batch says {base_offset}"
                )
            position, offset = stop, base_offset + last_offset_delta + 1
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise _corrupt(file, position, offset, f"the disk cannot read it ({error})") from error
    return Boundary(position, offset)


def _corrupt(file: ReadableFile, position: int, offset: int, message: str) -> CorruptLog:
    return CorruptLog(file.path, position, message, offset=offset)
