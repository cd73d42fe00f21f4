"""A segment that compaction writes, until it is there as a whole.

Owns the order in which its files appear. Refuses to know what is in them. It is written under a
name of its own, and gets the name of a segment only once it and its indexes are durable: a
segment with a generation above 0 is whole, which is what recovery without a checkpoint relies on.

    4096.2.cleaned   written, synced
    4096.2.index, 4096.2.timeindex   written, synced
    4096.2.cleaned ──rename──► 4096.2.log, directory synced
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from typing import Final

from millrace_protocol.records import batch_span
from millrace_server.environment.seams import Disk, File, ReadBuffer
from millrace_server.log.config import SEGMENT_BYTES_MAX
from millrace_server.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, Segment

_WRITE_BYTES: Final = 256 * 1024
_SYNC_BYTES: Final = 4 * 1024 * 1024
"""Written back so often: one sync of 100 MiB would hold up those of the producers."""


class CleanedSegment:
    """Takes batches in order, then is finished, or discarded. Every method may raise `OSError`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        generation: int,
        index_interval_bytes: int,
    ) -> None:
        self.segment = Segment(
            disk,
            directory,
            base_offset,
            generation=generation,
            index_interval_bytes=index_interval_bytes,
        )
        self.segment.start_indexes()
        self._disk = disk
        self._path = self.segment.path(CLEANED_SUFFIX)
        self._pending = bytearray()
        self._written_bytes = self._synced_bytes = 0
        if disk.exists(self._path):
            # Left of an attempt that found the disk full.
            disk.remove(self._path)
        self._file: File | None = disk.open(self._path, create=True, write=True)

    def has_room(self, size_bytes: int) -> bool:
        """Whether an index can name what lies behind so many bytes more; one batch always fits."""
        held_bytes = self.segment.size_bytes
        return not held_bytes or held_bytes + size_bytes <= SEGMENT_BYTES_MAX

    def add(self, batch: ReadBuffer) -> None:
        """Appends a batch."""
        base_offset, size_bytes, _, last_offset, max_timestamp = batch_span(batch)
        self.segment.extend(
            base_offset=base_offset,
            last_offset=last_offset,
            size_bytes=size_bytes,
            max_timestamp=max_timestamp,
        )
        self._pending += batch
        if len(self._pending) >= _WRITE_BYTES:
            file = self._written()
            if self._written_bytes - self._synced_bytes >= _SYNC_BYTES:
                file.sync()
                self._synced_bytes = self._written_bytes

    def finish(self) -> None:
        """Makes data and indexes durable; the segment has no name yet. Blocking."""
        file = self._written()
        file.sync()
        self._close_file()
        self.segment.allocated_bytes = self.segment.size_bytes
        self.segment.save_indexes()
        self.segment.are_indexes_saved = True
        self.segment.close_files()

    def give_name(self) -> None:
        """Makes a segment of what is finished; durable with the directory."""
        self._disk.rename(self._path, self.segment.path(LOG_SUFFIX))

    def discard(self) -> None:
        """Removes what there is of it; what cannot be removed is left to the next start."""
        self._close_file()
        self.segment.close_files()
        with contextlib.suppress(OSError):
            self.segment.remove_files()
            if self._disk.exists(self._path):
                self._disk.remove(self._path)

    def _written(self) -> File:
        """The file, with all of it that was added."""
        file = self._file
        if file is None:
            raise ValueError(f"{self._path} is finished")
        if self._pending:
            file.pwrite(self._pending, self._written_bytes)
            self._written_bytes += len(self._pending)
            self._pending = bytearray()
        return file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.release()
            self._file = None


def give_names(disk: Disk, directory: str, cleaned: Sequence[CleanedSegment]) -> None:
    """Makes segments of what took the place of one group, durably. Blocking.

    The first of them comes last: recovery that finds it takes the others to be there. A directory
    that cannot be synced is an `OSError` with EIO for every errno: it may have lost the
    name of a segment that a flush is about to sync, and that sync would report no error.
    """
    for some in (cleaned[1:], cleaned[:1]):
        for one in some:
            one.give_name()
        if some:
            try:
                disk.sync_directory(directory)
            except OSError as error:
                raise OSError(errno.EIO, f"directory not synced: {error}", directory) from error
