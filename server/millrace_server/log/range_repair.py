"""A corrupt range of a log is written anew with what another replica has there.

Owns the check that the other bytes are those that were here, and the write. Refuses to know where
they come from. Replicas hold the same batches in the same order, so that a range of one replica
fits into another to the byte, unless one of them was compacted since. A crash amid the write leaves
a corrupt range, as before. A range that the disk could not read is no longer corrupt when the disk
reads it as it was written.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.environment.seams import ReadableFile, ReadBuffer
from millrace_server.log.errors import CorruptLog, UnexpectedBatch
from millrace_server.log.integrity.corrupt_ranges import CorruptRange
from millrace_server.log.integrity.verification import Boundary, check_batches
from millrace_server.log.segment import LOG_SUFFIX, Segment
from millrace_server.log.state import LogState


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Implements `seams.ReadableFile` on bytes that are not on the disk yet."""

    path: str
    data: memoryview

    def pread(self, size: int, position: int) -> bytes:
        """See `ReadableFile`."""
        return bytes(self.data[position : position + size])


class RangeRepairs:
    """Repairs the ranges of one log; `begin` first, `write` in a thread, and `end` always."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def ranges(self) -> list[CorruptRange]:
        """Every range that is known to be corrupt, in rising order."""
        return [each for segment in self._state.chain.segments for each in segment.corrupt_ranges]

    def begin(self, found: CorruptRange, *, do_readers_wait: bool) -> bool:
        """False if the range is not there any more; with `do_readers_wait` readers come again."""
        segment = self._segment(found)
        if segment is not None and do_readers_wait:
            segment.corrupt_ranges.under_repair = found
        return segment is not None

    def is_readable(self, found: CorruptRange) -> bool:
        """Whether the disk gives the range as it was written after all. Blocking.

        Nothing may replace the segment meanwhile. Raises `OSError` unless the disk cannot read it.
        """
        segment = self._segment(found)
        if segment is None:
            return False
        file = self._state.disk.open(found.path)
        try:
            _check_range(file, found, found.position, is_dense=segment.is_dense)
        except (CorruptLog, UnexpectedBatch):
            return False
        finally:
            file.release()
        return True

    def write(self, found: CorruptRange, batches: ReadBuffer) -> None:
        """Writes the batches of another replica, and makes them durable. Blocking.

        Nothing may replace the segment meanwhile. Raises `UnexpectedBatch` and `CorruptLog` unless
        the batches fill the range as the records did that were there, and `OSError`.
        """
        segment = self._segment(found)
        if segment is None:
            return
        _check(found, memoryview(batches), is_dense=segment.is_dense)
        file = self._state.disk.open(found.path, write=True)
        try:
            file.pwrite(batches, found.position)
            file.sync()
        finally:
            file.release()

    def end(self, found: CorruptRange, *, is_repaired: bool) -> None:
        """Readers get the range from now on, or are refused as before."""
        segment = self._segment(found)
        if segment is not None:
            segment.corrupt_ranges.under_repair = None
            if is_repaired:
                segment.corrupt_ranges.remove(found)

    def _segment(self, found: CorruptRange) -> Segment | None:
        state = self._state
        if state.is_closed or not state.start_offset < found.end_offset <= state.end_offset:
            return None
        segment = state.chain.holding(found.offset)
        is_there = segment.path(LOG_SUFFIX) == found.path and found in segment.corrupt_ranges
        return segment if is_there else None


def _check(found: CorruptRange, batches: memoryview, *, is_dense: bool) -> None:
    size_bytes = found.end_position - found.position
    if len(batches) != size_bytes:
        raise UnexpectedBatch(
            f"the range has {size_bytes} bytes and the other replica {len(batches)}: one of them "
            "was compacted"
        )
    _check_range(_Replacement(found.path, batches), found, 0, is_dense=is_dense)


def _check_range(file: ReadableFile, found: CorruptRange, position: int, *, is_dense: bool) -> None:
    """Checks the batches that a file has from `position` on in place of the range."""
    end_position = position + found.end_position - found.position
    end = check_batches(
        file,
        Boundary(position, found.offset),
        end_position,
        end_position=end_position,
        is_dense=is_dense,
    )
    if end.offset > found.end_offset or (is_dense and end.offset < found.end_offset):
        raise UnexpectedBatch(
            f"the range ends at offset {found.end_offset} and the other bytes at {end.offset}"
        )
