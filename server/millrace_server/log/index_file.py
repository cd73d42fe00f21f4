"""An index on the disk: its entries, and their CRC-32C behind them, u32 big-endian.

Owns the file of one index of a segment. Refuses to know what the entries mean. The CRC is there
because a bit that changes on the disk must not make a reader skip records.
"""

from __future__ import annotations

import struct
from typing import Final

import crc32c

from millrace_server.environment.seams import Disk

INDEX_CRC: Final = struct.Struct(">I")


def read_index(disk: Disk, path: str, size_bytes: int | None = None) -> bytes | None:
    """The entries, `size_bytes` or all; None if they are not as written. Raises `OSError`."""
    if size_bytes == 0:
        return b""
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        if size_bytes is None:
            size_bytes = file.size() - INDEX_CRC.size
        data = file.pread(size_bytes + INDEX_CRC.size, 0)
    finally:
        file.release()
    if size_bytes < 0 or len(data) != size_bytes + INDEX_CRC.size:
        return None
    entries = data[:size_bytes]
    crc = INDEX_CRC.unpack_from(data, size_bytes)[0]
    return entries if crc == crc32c.crc32c(entries) else None


def write_index(disk: Disk, path: str, entries: bytes) -> None:
    """Writes the file, or over it, and makes it durable. Blocking; raises `OSError`."""
    file = disk.open(path, create=not disk.exists(path), write=True)
    try:
        file.pwrite(entries + INDEX_CRC.pack(crc32c.crc32c(entries)), 0)
        file.truncate(len(entries) + INDEX_CRC.size)
        file.sync()
    finally:
        file.release()
