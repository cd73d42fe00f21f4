"""One round of making a log durable: what is to be done, and the doing.

Owns the order of the steps, which is what recovery relies on. Refuses to know when a flush is
worth it (`PartitionLog`) and in which thread it runs (`disk.flusher`).

    PartitionLog.begin_flush    notes what is dirty                               loop
    FlushTicket.sync            epochs, gaps, data, directory, recovery point,    worker thread
                                space for the next appends
    PartitionLog.finish_flush   durable_offset moves, appends are acked           loop
    FlushTicket.settle          trim, indexes, checkpoint, then removals          worker thread
    PartitionLog.finish_settle  notes what was saved                              loop

One ticket per log at a time: two checkpoints in flight could overtake each other.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Final

import crc32c

from millrace_server.environment.seams import Disk, File
from millrace_server.log.checkpoint import Checkpoint, write_checkpoint
from millrace_server.log.epochs import EpochTable, write_epochs
from millrace_server.log.index_file import INDEX_CRC
from millrace_server.log.offset_gaps import sync_gap_end
from millrace_server.log.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from millrace_server.log.recovery_point import RecoveryPoint, RecoveryPointFile
from millrace_server.log.segment import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment
from millrace_server.log.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE

DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SKIPPED_ERRNOS: Final = DISK_FULL_ERRNOS | {errno.EMFILE, errno.ENFILE}
"""They say nothing of the disk's health: the recovery point stays, and the next flush tries."""


@dataclass(slots=True)
class IndexTail:
    """Index entries of the active segment that its files do not have yet."""

    segment: Segment
    first_entry: int
    entry_count: int
    offsets: bytes
    times: bytes
    crcs: tuple[int, int]
    """Of all entries up to the end of each."""

    @classmethod
    def of(cls, segment: Segment) -> IndexTail | None:
        """Copies what is not saved of a segment's indexes; None if all is."""
        first, count = segment.saved_entries, len(segment.offsets)
        if first == count:
            return None
        offsets, times = segment.offsets.encode(first), segment.times.encode(first)
        offset_crc, time_crc = segment.saved_crcs
        crcs = crc32c.crc32c(offsets, offset_crc), crc32c.crc32c(times, time_crc)
        return cls(segment, first, count, offsets, times, crcs)

    def write(self, disk: Disk) -> None:
        """Writes the entries behind those that the files have, durably. Raises `OSError`."""
        for suffix, data, entry_size, crc in (
            (OFFSET_INDEX_SUFFIX, self.offsets, OFFSET_ENTRY_SIZE, self.crcs[0]),
            (TIME_INDEX_SUFFIX, self.times, TIME_ENTRY_SIZE, self.crcs[1]),
        ):
            path = self.segment.path(suffix)
            file = disk.open(path, create=not disk.exists(path), write=True)
            try:
                file.pwrite(data + INDEX_CRC.pack(crc), self.first_entry * entry_size)
                file.sync()
            finally:
                file.release()

    def note_saved(self) -> None:
        """Notes in the segment that its files have these entries."""
        self.segment.saved_entries = self.entry_count
        self.segment.saved_crcs = self.crcs


@dataclass(slots=True)
class FlushTicket:
    """The work of one flush; holds a reference to every file it names until it is released.

    `end_offset` is what will be durable, and lies at `end_position` of `end_segment`. If that is
    more than before, `recovery_point` is where to note it. `epochs` is the epoch table, None if the
    disk has it.
    """

    disk: Disk
    directory: str
    end_offset: int
    end_segment: Segment
    end_position: int
    recovery_point: RecoveryPointFile | None = None
    epochs: EpochTable | None = None
    are_epochs_saved: bool = False
    dirty: list[File] = field(default_factory=list)
    sync_gap_end: bool = False
    sync_directory: bool = False
    rolled: list[tuple[Segment, File]] = field(default_factory=list)
    index_tail: IndexTail | None = None
    checkpoint: Checkpoint | None = None
    is_closing: bool = False
    removed: list[Segment] = field(default_factory=list)
    preallocation: tuple[Segment, File, int] | None = None
    recovery_point_error: OSError | None = None
    is_settled: bool = False
    is_preallocated: bool = False

    @property
    def has_chores(self) -> bool:
        """Whether there is anything for `settle` to do."""
        return self.checkpoint is not None or self.recovery_point_error is not None

    def hold_dirty(self, file: File) -> None:
        """Adds a file with data that is not durable."""
        file.retain()
        self.dirty.append(file)

    def hold_rolled(self, segment: Segment) -> None:
        """Adds a segment that is closed and still has its preallocated space."""
        segment.file.retain()
        self.rolled.append((segment, segment.file))

    def hold_preallocation(self, segment: Segment, size_bytes: int) -> None:
        """Adds the wish that the active segment's file has space for `size_bytes`."""
        segment.file.retain()
        self.preallocation = segment, segment.file, size_bytes

    def note_preallocated(self) -> None:
        """Notes in the segment what space it has."""
        if self.preallocation is not None and self.is_preallocated:
            segment, _, size_bytes = self.preallocation
            segment.allocated_bytes = max(segment.allocated_bytes, size_bytes)

    def sync(self) -> None:
        """Makes the data up to `end_offset` durable, and notes how far that is. Blocking.

        The note is there before an append is acked, so what a killed process had acked is known to
        be durable. An error of the note waits for `settle`: the data is safe. Raises `OSError`,
        after which the log must fail: the kernel has marked the pages clean, and a second sync
        would succeed without writing them.
        """
        try:
            self._save_epochs()
        except OSError as error:
            # A full disk leaves the table for the next ticket, and a leader waits for it.
            if error.errno not in DISK_FULL_ERRNOS:
                raise
        if self.sync_gap_end:
            sync_gap_end(self.disk, self.directory)
        for file in self.dirty:
            file.sync()
        if self.sync_directory:
            self.disk.sync_directory(self.directory)
        if self.recovery_point is not None:
            self._write_recovery_point(self.recovery_point)
        self._preallocate()

    def settle(self) -> None:
        """Does what speeds up recovery and reads, and what no ack waits for. Blocking.

        A full disk leaves the remaining steps to the next ticket; no data is lost. Raises any other
        `OSError`, after which the log must fail; one that the recovery point met comes first.
        """
        if self.recovery_point_error is not None:
            raise self.recovery_point_error
        if self.epochs is not None and not self.are_epochs_saved:
            # The checkpoint must not be ahead of the epoch table.
            return
        try:
            self._trim()
            self._save_indexes()
            if self.checkpoint is not None:
                write_checkpoint(self.disk, self.directory, self.checkpoint)
            self._remove()
            self.is_settled = True
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise

    def release(self) -> None:
        """Drops the references to the files."""
        for file in self.dirty:
            file.release()
        for _, file in self.rolled:
            file.release()
        if self.preallocation is not None:
            self.preallocation[1].release()

    def _save_epochs(self) -> None:
        if self.epochs is not None and not self.are_epochs_saved:
            write_epochs(self.disk, self.directory, self.epochs)
            self.are_epochs_saved = True

    def _preallocate(self) -> None:
        """Reserves space, in some 50 us; a step of its own in this thread would take longer."""
        if self.preallocation is None:
            return
        _, file, size_bytes = self.preallocation
        try:
            file.preallocate(size_bytes)
            self.is_preallocated = True
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise

    def _write_recovery_point(self, file: RecoveryPointFile) -> None:
        base_offset = self.end_segment.base_offset
        try:
            file.write(RecoveryPoint(self.end_offset, base_offset, self.end_position))
        except OSError as error:
            if error.errno not in _SKIPPED_ERRNOS:
                self.recovery_point_error = error

    def _trim(self) -> None:
        """Cuts preallocated space off, durably: the checkpoint is going to name the sizes."""
        for segment, file in self.rolled:
            file.truncate(segment.size_bytes)
            file.sync()
        if self.is_closing:
            file = self.end_segment.file
            file.truncate(self.end_position)
            file.sync()

    def _save_indexes(self) -> None:
        for segment, _ in self.rolled:
            segment.save_indexes()
        if self.index_tail is not None:
            self.index_tail.write(self.disk)

    def _remove(self) -> None:
        for segment in self.removed:
            segment.remove_files()
        if self.removed:
            self.disk.sync_directory(self.directory)
