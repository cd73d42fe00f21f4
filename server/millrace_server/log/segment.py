"""A segment: one file of whole batches in offset order, and its two indexes.

Owns the files of one segment, how far it is written, and the search in it. Refuses to know other
segments, producers, durability and high watermarks. Batches are never decoded.

    00000000000000004096.log         batches, from base offset 4096 on
    00000000000000004096.index       see offset_index
    00000000000000004096.timeindex   see time_index
    00000000000000004096.2.log       the same from 4096 on, cleaned a second time

A segment that compaction made has a generation above 0 in its names: it lies beside those that it
replaces until the checkpoint names it in their place.

An index that is not as it was saved (`index_file`) is built again.

What was checked since the process began, and which ranges are known to be corrupt, is remembered
here as long as the segment is.

The newest segment of a log is *active*: its indexes live in memory and its file may be
preallocated beyond `size_bytes`. The others are *closed*: they never change, and hold files and
indexes open only between a read and `close_files`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import crc32c

from millrace_protocol.records import HEADER_SIZE, batch_extent
from millrace_server.environment.seams import Disk, File, ReadableFile, ReadBuffer
from millrace_server.log.errors import CorruptLog
from millrace_server.log.header_walk import WINDOW_BYTES, Span, walk_headers
from millrace_server.log.index_file import read_index, write_index
from millrace_server.log.integrity.corrupt_ranges import CorruptRanges
from millrace_server.log.integrity.verification import Boundary, check_batches
from millrace_server.log.integrity.verified import Verified
from millrace_server.log.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from millrace_server.log.offset_index import OffsetIndex
from millrace_server.log.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from millrace_server.log.time_index import NO_TIMESTAMP, TimeIndex

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
CLEANED_SUFFIX: Final = ".cleaned"
"""Records that are being written, to take the place of a segment's."""
SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)

RELATIVE_OFFSET_MAX: Final = 2**31 - 1

_SCAN_WINDOW_BYTES: Final = 256 * 1024


class Segment:
    """Batches with `base_offset <= offset < end_offset` in the first `size_bytes` of a file."""

    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_indexed_position",
        "_offsets",
        "_times",
        "allocated_bytes",
        "are_indexes_saved",
        "base_offset",
        "corrupt_ranges",
        "end_offset",
        "first_timestamp",
        "generation",
        "index_interval_bytes",
        "is_dense",
        "is_tail_dirty",
        "max_timestamp",
        "saved_crcs",
        "saved_entries",
        "size_bytes",
        "verified",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        generation: int = 0,
        end_offset: int | None = None,
        size_bytes: int = 0,
        max_timestamp: int = NO_TIMESTAMP,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._indexed_position = 0
        self.base_offset = base_offset
        self.generation = generation
        self.end_offset = base_offset if end_offset is None else end_offset
        self.size_bytes = size_bytes
        self.max_timestamp = max_timestamp
        self.first_timestamp = NO_TIMESTAMP
        self.index_interval_bytes = index_interval_bytes
        self.allocated_bytes = size_bytes
        self.is_tail_dirty = False
        self.are_indexes_saved = True
        self.saved_entries = 0
        self.saved_crcs = 0, 0
        self.is_dense = generation == 0
        """Whether every batch continues the one before it; compaction leaves out offsets, and a
        follower of a compacted leader takes the gaps over (`offset_gaps`)."""
        self.corrupt_ranges = CorruptRanges()
        self.verified = Verified(0)

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int
    ) -> Segment:
        """Makes the file of a new active segment. Raises `OSError`."""
        segment = cls(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        segment._file = disk.open(segment.path(LOG_SUFFIX), create=True, write=True)
        segment.start_indexes()
        return segment

    def path(self, suffix: str) -> str:
        """Path of one of the segment's files."""
        cleaned = f".{self.generation}" if self.generation else ""
        return f"{self._directory}/{self.base_offset:020d}{cleaned}{suffix}"

    def log_path(self) -> str:
        """Path of the file of batches."""
        return self.path(LOG_SUFFIX)

    def open_for_writing(self) -> None:
        """Holds the file open for appends, as an active segment must."""
        self.close_files()
        self._file = self._disk.open(self.path(LOG_SUFFIX), write=True)

    def start_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Begins with empty indexes, to be filled by `extend`."""
        self._offsets = offsets = OffsetIndex()
        self._times = times = TimeIndex()
        self._indexed_position = 0
        self.are_indexes_saved = False
        self.saved_entries = 0
        self.saved_crcs = 0, 0
        return offsets, times

    @property
    def file(self) -> File:
        """The file, opened if it is not. Raises `OSError`."""
        if self._file is None:
            self._file = self._disk.open(self.path(LOG_SUFFIX))
        return self._file

    @property
    def offsets(self) -> OffsetIndex:
        """The offset index, loaded or rebuilt if it is not in memory."""
        return self._load_indexes()[0] if self._offsets is None else self._offsets

    def peek_index(self) -> OffsetIndex:
        """The offset index for one look: what is not in memory is read, and not kept.

        Takes a thirtieth of `offsets`, which also loads the other index and checks every entry.
        Raises `CorruptLog` and `OSError`.
        """
        if self._offsets is not None:
            return self._offsets
        data = self._read_index(OFFSET_INDEX_SUFFIX)
        if data is not None and len(data) % OFFSET_ENTRY_SIZE == 0:
            return OffsetIndex.decode_unchecked(data)
        is_open = self._file is not None
        try:
            return self.offsets
        finally:
            if not is_open:
                self.close_files()

    @property
    def times(self) -> TimeIndex:
        """The time index, loaded or rebuilt if it is not in memory."""
        return self._load_indexes()[1] if self._times is None else self._times

    def write(self, batch: ReadBuffer) -> None:
        """Writes a batch behind the last one, which `extend` then makes part of the segment.

        Raises `OSError`, after which the segment is as before and the bytes behind it are garbage.
        """
        if self.is_tail_dirty:
            # What a failed write left behind could outlast a shorter batch written over it, and
            # recovery would take it for the next batch if it were made to look like one.
            self.file.truncate(self.size_bytes)
            self.allocated_bytes = self.size_bytes
            self.is_tail_dirty = False
        try:
            self.file.pwrite(batch, self.size_bytes)
        except OSError:
            self.is_tail_dirty = True
            raise

    def extend(
        self, *, base_offset: int, last_offset: int, size_bytes: int, max_timestamp: int
    ) -> None:
        """Takes in the batch at `size_bytes` of the file.

        Raises `CorruptLog` for offsets that no segment of this base offset is given: a batch's
        base offset is not under its CRC.
        """
        position = self.size_bytes
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            raise CorruptLog(
                self.path(LOG_SUFFIX), position, f"offset {last_offset} is too far from the first"
            )
        if position == 0:
            self.first_timestamp = max_timestamp
        elif position - self._indexed_position >= self.index_interval_bytes:
            relative_offset = base_offset - self.base_offset
            self.offsets.append(relative_offset, position)
            self.times.append(self.max_timestamp, relative_offset)
            self._indexed_position = position
        self.size_bytes = position + size_bytes
        self.end_offset = last_offset + 1
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def boundary_of(self, offset: int) -> Boundary:
        """Returns where the batch that holds `offset` begins; where there is none, the next one.

        `base_offset <= offset < end_offset`. Raises `CorruptRecords` if that is known to be
        corrupt, and `CorruptLog` where the file is not as written.
        """
        relative_offset = offset - self.base_offset
        indexed, position = self.offsets.floor_offset(relative_offset)
        start = Boundary(position, self.base_offset + indexed)
        if self.corrupt_ranges:
            start = self._behind_corruption(start, offset)
        if start.offset == offset:
            return start
        try:
            for span in self.spans(start.position, self.size_bytes, offset=start.offset):
                if span.last_offset >= offset:
                    return Boundary(span.position, span.base_offset)
        except CorruptLog as fault:
            raise self._culprit(start, fault) from fault
        raise CorruptLog(
            self.path(LOG_SUFFIX),
            start.position,
            f"offset {offset} is not in the file",
            offset=start.offset,
        )

    def boundary_before(self, limit: int, start: Boundary, end: Boundary) -> Boundary:
        """Returns the end of a read of whole batches from `start` on, at most up to `end`.

        Ends at or before `limit` and as late as the index knows, but behind one batch at least,
        which must be there. Raises `CorruptLog` where the file is not as written.
        """
        relative_offset, end_position = self.offsets.floor_position(limit)
        if end_position > start.position:
            return Boundary(end_position, self.base_offset + relative_offset)
        reached = start
        try:
            for span in self.spans(start.position, end.position, offset=start.offset):
                span_end = span.position + span.size_bytes
                if span_end > limit and span.position > start.position:
                    break
                reached = Boundary(span_end, span.last_offset + 1)
        except CorruptLog as fault:
            raise self._culprit(start, fault) from fault
        return reached

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Reads for the log's own use: what that brings from the disk is not checked."""
        if (cached := self.file.pread_cached(size_bytes, position)) is not None:
            return bytes(cached)
        self.verified.note_read(position, position + size_bytes, file_end=self.size_bytes)
        return self.file.pread(size_bytes, position)

    def check(
        self, file: ReadableFile, start: Boundary, until: int, *, end_position: int | None = None
    ) -> Boundary:
        """Reads and checks batches; see `check_batches`. Blocking; any thread may call it."""
        end_position = self.size_bytes if end_position is None else end_position
        return check_batches(file, start, until, end_position=end_position, is_dense=self.is_dense)

    def spans(
        self,
        position: int,
        end_position: int,
        *,
        offset: int | None = None,
        window_bytes: int = WINDOW_BYTES,
    ) -> Iterator[Span]:
        """Yields the batches from one batch boundary to another by their headers alone.

        `offset` is that of the first record at `position`, by default the segment's first. Raises
        `CorruptLog` where a length or an offset cannot be true.
        """
        return walk_headers(
            self.pread,
            self.log_path,
            position,
            self.base_offset if offset is None else offset,
            end_position,
            # Taken now: building an index moves the segment's end along with the walk.
            self.end_offset,
            is_dense=self.is_dense,
            window_bytes=window_bytes,
        )

    def begun_ms(self) -> int:
        """The timestamp of the first batch, read if it is not known; -1 if it has none."""
        if self.first_timestamp < 0:
            with suppress(OSError, CorruptLog):
                for span in self.spans(0, self.size_bytes):
                    self.first_timestamp = span.max_timestamp
                    break
        return self.first_timestamp

    def max_timestamp_before(self, end_offset: int) -> int:
        """Returns the largest timestamp of the batches below `end_offset`, -1 if there is none."""
        if end_offset >= self.end_offset:
            return self.max_timestamp
        largest, relative_offset = self.times.floor_offset(end_offset - self.base_offset)
        relative_offset, position = self.offsets.floor_offset(relative_offset)
        for span in self.spans(
            position, self.size_bytes, offset=self.base_offset + relative_offset
        ):
            if span.base_offset >= end_offset:
                break
            largest = max(largest, span.max_timestamp)
        return largest

    def restore_indexes(self, entry_count: int) -> bool:
        """Loads exactly `entry_count` saved entries of an active segment; False if they are bad."""
        offset_data = self._read_index(OFFSET_INDEX_SUFFIX, entry_count * OFFSET_ENTRY_SIZE)
        time_data = self._read_index(TIME_INDEX_SUFFIX, entry_count * TIME_ENTRY_SIZE)
        if offset_data is None or time_data is None:
            return False
        offsets = OffsetIndex.decode(offset_data, end_position=self.size_bytes)
        times = TimeIndex.decode(time_data)
        if offsets is None or times is None or not len(offsets) == len(times) == entry_count:
            return False
        if not self._is_boundary(offsets):
            return False
        self._offsets, self._times = offsets, times
        self._indexed_position = offsets.last_position
        self.saved_entries = entry_count
        self.saved_crcs = crc32c.crc32c(offset_data), crc32c.crc32c(time_data)
        self.are_indexes_saved = False
        return True

    def rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Makes both indexes, and the largest timestamp, from the batch headers."""
        end_position, end_offset = self.size_bytes, self.end_offset
        max_timestamp = self.max_timestamp
        indexes = self.start_indexes()
        self.size_bytes, self.max_timestamp = 0, NO_TIMESTAMP
        try:
            for span in self.spans(0, end_position, window_bytes=_SCAN_WINDOW_BYTES):
                self.extend(
                    base_offset=span.base_offset,
                    last_offset=span.last_offset,
                    size_bytes=span.size_bytes,
                    max_timestamp=span.max_timestamp,
                )
        except CorruptLog:
            self.max_timestamp = max_timestamp
            raise
        finally:
            self.size_bytes, self.end_offset = end_position, end_offset
        return indexes

    def save_indexes(self) -> None:
        """Writes the indexes of a closed segment and makes them durable. Blocking; `OSError`."""
        end = TimeIndex()
        end.append(self.max_timestamp, min(self.end_offset - self.base_offset, RELATIVE_OFFSET_MAX))
        write_index(self._disk, self.path(OFFSET_INDEX_SUFFIX), self.offsets.encode())
        write_index(self._disk, self.path(TIME_INDEX_SUFFIX), self.times.encode() + end.encode())

    def close_files(self) -> None:
        """Lets go of the file, and of indexes that can be loaded again; a reader keeps its own."""
        if self._file is not None:
            self._file.release()
            self._file = None
        if self.are_indexes_saved:
            self._offsets = self._times = None

    def remove_files(self) -> None:
        """Deletes what there is of the segment; a reader keeps the file that it holds."""
        for suffix in SUFFIXES:
            path = self.path(suffix)
            if self._disk.exists(path):
                self._disk.remove(path)

    def trust_nothing(self) -> None:
        """Forgets what was checked: the segment is taken over from an earlier process."""
        self.verified = Verified(self.size_bytes)

    def _culprit(self, start: Boundary, fault: CorruptLog) -> CorruptLog:
        """What is wrong first in a walk that met `fault`: a header may lie about what follows."""
        self.verified.note_read(start.position, fault.position, file_end=self.size_bytes)
        try:
            self.check(self.file, start, fault.position + 1)
        except CorruptLog as first:
            return first
        return fault

    def _behind_corruption(self, start: Boundary, offset: int) -> Boundary:
        """`start`, or where the last corrupt range before `offset` ends, if that is closer."""
        if (holding := self.corrupt_ranges.holding(offset)) is not None:
            raise self.corrupt_ranges.refusal(holding)
        corrupt_range = self.corrupt_ranges.before(offset)
        if corrupt_range is None or corrupt_range.end_position <= start.position:
            return start
        return Boundary(corrupt_range.end_position, corrupt_range.end_offset)

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        offset_data = self._read_index(OFFSET_INDEX_SUFFIX)
        time_data = self._read_index(TIME_INDEX_SUFFIX)
        if offset_data is None or time_data is None:
            return self.rebuild_indexes()
        offsets = OffsetIndex.decode(offset_data, end_position=self.size_bytes)
        times = TimeIndex.decode(time_data)
        if offsets is None or times is None or len(times) != len(offsets) + 1:
            return self.rebuild_indexes()
        if not self._is_boundary(offsets):
            try:
                return self.rebuild_indexes()
            except CorruptLog:
                # Not the index, whose own CRC is right, but the batch it names has changed.
                self.are_indexes_saved = True
        self._offsets, self._times = offsets, times
        return offsets, times

    def _is_boundary(self, offsets: OffsetIndex) -> bool:
        """Whether the last entry names a batch that is there: catches an index of other bytes."""
        relative_offset, position = offsets.floor_position(self.size_bytes)
        header = self.pread(HEADER_SIZE, position)
        if len(header) < HEADER_SIZE:
            return self.size_bytes == 0
        return position == 0 or batch_extent(header)[0] == self.base_offset + relative_offset

    def _read_index(self, suffix: str, size_bytes: int | None = None) -> bytes | None:
        return read_index(self._disk, self.path(suffix), size_bytes)
