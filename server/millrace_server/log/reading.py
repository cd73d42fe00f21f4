"""A range of a log's bytes for a reader, and what is known of them.

Owns where a read begins and ends, and the check of what a slice promises before it is sent.
Refuses to touch bytes on the way: the sender of a slice asks `SliceBatches` whether they were
checked since they came from the disk, and has a thread check them if not. The chain remembers a
corrupt range that is met, and the next read is refused with a message.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from millrace_server.environment.seams import File, FileSlice
from millrace_server.log.chain import SegmentChain
from millrace_server.log.errors import CorruptLog
from millrace_server.log.integrity.corrupt_ranges import CORRUPT_RANGES_MAX
from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.segment import Segment

CHECK_AHEAD_BYTES: Final = 256 * 1024
"""Checked at once, though less was asked for: a consumer of small chunks pays for the thread
that checks once in so many bytes. About what a kernel reads ahead."""


class LogRead(NamedTuple):
    """Whole batches as a range of a file, which the receiver releases; None if there are none.

    The first batch may begin before the offset that was asked for. `next_offset` is where to read
    on.
    """

    slice: FileSlice | None
    next_offset: int


class SliceBatches:
    """See `seams.SliceSource`: the batches of a segment from `start` on.

    Those before `end_position` may be read and checked."""

    __slots__ = (
        "_began_before",
        "_chain",
        "_checked_from",
        "_checked_until",
        "_end_position",
        "_segment",
    )

    def __init__(
        self, chain: SegmentChain, segment: Segment, start: Boundary, end_position: int
    ) -> None:
        self._chain = chain
        self._segment = segment
        self._end_position = end_position
        self._checked_from = self._checked_until = start
        self._began_before = False

    def is_checked(self, position: int, end_position: int) -> bool:
        """Whether the bytes were checked since the process began."""
        return self._segment.verified.covers(position, end_position)

    def check(self, file: File, position: int, until: int) -> int:
        """Reads and checks the batches that hold `[position, until)`; returns where they end."""
        start = self._checked_until
        if position < start.position:
            start = self._checked_from
        ahead = min(position + CHECK_AHEAD_BYTES, self._end_position)
        try:
            end = self._segment.check(
                file, start, max(until, ahead), end_position=self._end_position
            )
        except CorruptLog as error:
            if error.position < until:
                raise
            # A reader that comes so far gets the error.
            end = self._segment.check(file, start, until, end_position=self._end_position)
        self._checked_from, self._checked_until = start, end
        self._began_before = start.position < position
        return end.position

    def note_checked(self, *, is_first_page_new: bool) -> None:
        """The last check found all as it was."""
        verified, file_end = self._segment.verified, self._segment.size_bytes
        start, end = self._checked_from.position, self._checked_until.position
        if is_first_page_new or self._began_before:
            verified.note_read(start, end, file_end=file_end)
        verified.note_read_ahead(end, file_end=file_end)
        verified.note(start, end)

    def note_unchecked(self, position: int, end_position: int) -> None:
        """Bytes were read that are checked elsewhere, or not at all."""
        segment = self._segment
        segment.verified.note_read(position, end_position, file_end=segment.size_bytes)

    def note_failure(self, error: BaseException) -> None:
        """The last check failed."""
        if isinstance(error, CorruptLog):
            self._chain.found_corruption(self._segment, error)


def read_batches(
    chain: SegmentChain, offset: int, *, max_bytes: int, end_offset: int, known_end: Boundary
) -> LogRead:
    """Finds whole batches from the one that holds `offset` on, without touching their bytes.

    `end_offset` is exclusive and a batch boundary; so is `known_end`, of which the position in
    the active segment is known. At most `max_bytes`, except that one batch is always given whole;
    never beyond one segment, and never beyond a range that is known to be corrupt. Raises
    `CorruptRecords` if that begins here, `CorruptLog` and `OSError`.
    """
    for _ in range(CORRUPT_RANGES_MAX):
        try:
            return _read(
                chain, offset, max_bytes=max_bytes, end_offset=end_offset, known_end=known_end
            )
        except CorruptLog as error:
            # A header that cannot be true, met on the way to a boundary.
            if error.offset < 0:
                raise
            chain.found_corruption(chain.holding(offset), error)
            found = error
    raise found


def _read(
    chain: SegmentChain, offset: int, *, max_bytes: int, end_offset: int, known_end: Boundary
) -> LogRead:
    segment, position, first_offset = chain.find(offset)
    if segment is not chain.active:
        chain.keep_open(segment)
    if end_offset >= segment.end_offset:
        end = Boundary(segment.size_bytes, segment.end_offset)
    elif end_offset == known_end.offset:
        end = known_end
    else:
        end = Boundary(chain.find(end_offset).position, end_offset)
    start = Boundary(position, first_offset)
    if segment.corrupt_ranges:
        end = _end_before_corruption(segment, start, end)
    readable_end = end
    if end.position - position > max_bytes:
        end = segment.boundary_before(position + max_bytes, start, end)
    size_bytes = end.position - position
    if size_bytes <= 0:
        return LogRead(None, end_offset)
    chain.remember(end.offset, segment, end.position)
    file = segment.file
    file.retain()
    batches = SliceBatches(chain, segment, start, readable_end.position)
    return LogRead(FileSlice(file, position, size_bytes, batches), end.offset)


def _end_before_corruption(segment: Segment, start: Boundary, end: Boundary) -> Boundary:
    corrupt_range = segment.corrupt_ranges.from_position(start.position)
    if corrupt_range is None or corrupt_range.position >= end.position:
        return end
    if corrupt_range.position <= start.position:
        raise segment.corrupt_ranges.refusal(corrupt_range)
    return Boundary(corrupt_range.position, corrupt_range.offset)
