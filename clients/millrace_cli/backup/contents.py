"""The records of a backup, read from its files and checked against its manifest.

Owns the checks: size and checksum of each file, the CRC of each batch, and that offsets rise and
lie where the manifest says. Memory is bounded by `PART_BYTES` and one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final
from uuid import UUID

import crc32c

from millrace_cli.backup.manifest import Backup, BackupFile, BackupPartition, file_path
from millrace_cli.exits import InputError
from millrace_protocol.records import (
    batch_extent,
    batch_ranges,
    check_batches,
)

PART_BYTES: Final = 4 << 20
"""So much of a file is read at a time."""
_EXTENT_BYTES: Final = 12
OnBytes = Callable[[int], None]
"""Takes how many bytes more were read."""


def read_batches(
    root: Path, topic_id: UUID, number: int, partition: BackupPartition, on_bytes: OnBytes
) -> Iterator[bytes]:
    """The batches of a partition, in parts that hold whole batches.

    Raises `InputError` for a file that is not what was written, at its end at the latest, and
    `OSError`.
    """
    next_offset = 0
    for file in partition.files:
        path = root / file_path(topic_id, number, file)
        try:
            with path.open("rb") as source:
                for part in _parts(source, path, file, on_bytes):
                    next_offset = _check_offsets(part, path, file, next_offset)
                    yield part
        except FileNotFoundError:
            raise _damaged(path, "it is missing") from None
        if next_offset != file.end_offset:
            raise _damaged(path, f"it ends at offset {next_offset}, not {file.end_offset}")


def verify(root: Path, backup: Backup, on_bytes: OnBytes) -> None:
    """Reads every file. Raises `InputError` at the first that is damaged, and `OSError`."""
    for topic in backup.topics:
        for number, partition in enumerate(topic.partitions):
            for _ in read_batches(root, topic.topic_id, number, partition, on_bytes):
                pass


def _parts(source: BinaryIO, path: Path, file: BackupFile, on_bytes: OnBytes) -> Iterator[bytes]:
    """The content of a file in parts of whole batches with right CRCs."""
    rest, crc, size_bytes = b"", 0, 0
    while data := source.read(max(PART_BYTES, _missing(rest))):
        on_bytes(len(data))
        crc, size_bytes = crc32c.crc32c(data, crc), size_bytes + len(data)
        if size_bytes > file.size_bytes:
            raise _damaged(path, f"it has more than {file.size_bytes} bytes")
        rest += data
        end = _whole_end(rest, path, file, size_bytes)
        if end:
            part, rest = rest[:end], rest[end:]
            # Of whole batches only: each error of a cut one would keep the part in a cycle.
            corrupt = check_batches(part)[1]
            if corrupt is not None:
                raise _damaged(path, str(corrupt))
            yield part
    if rest or size_bytes != file.size_bytes:
        raise _damaged(path, f"it has {size_bytes} bytes of {file.size_bytes}")
    if crc != file.crc32c:
        raise _damaged(path, "its checksum does not fit")


def _whole_end(data: bytes, path: Path, file: BackupFile, read_bytes: int) -> int:
    """Where the last whole batch in `data` ends, by the lengths of batches."""
    end = max((batch_end for _, batch_end, _, _ in batch_ranges(data)), default=0)
    rest_bytes = len(data) - end
    if rest_bytes >= _EXTENT_BYTES:
        size = batch_extent(data, end)[1]
        # A length that leads past the end of the file would have the rest of it read into memory.
        if not rest_bytes < size <= rest_bytes + file.size_bytes - read_bytes:
            raise _damaged(path, f"a batch of {size} bytes does not end in it")
    return end


def _missing(rest: bytes) -> int:
    """Bytes that the batch at the beginning of `rest` lacks, as far as it says."""
    return batch_extent(rest)[1] - len(rest) if len(rest) >= _EXTENT_BYTES else 0


def _check_offsets(part: bytes, path: Path, file: BackupFile, next_offset: int) -> int:
    """Returns the offset behind the last batch."""
    for _, _, base_offset, last_offset in batch_ranges(part):
        if base_offset < max(next_offset, file.start_offset) or last_offset >= file.end_offset:
            raise _damaged(path, f"its batch at offset {base_offset} does not belong there")
        next_offset = last_offset + 1
    return next_offset


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} is damaged: {reason}; take another backup, or restore another one")
