"""Where to cut a range of a log, so that each piece takes about as many bytes on the disk.

Owns the arithmetic over segments and their offset indexes. Refuses to read batches: a cut is a
boundary that an index names, or the end of a segment (wire_spec.md W-4.23).

    segments   |------------------|--------------|---------
    known      |    |    |   |    |    |    |    |    |         boundaries of batches, all that
                                                                the indexes name
    range              [-----------------------------)
    pieces           [-----------|---------|-----------)        in bytes: from the boundary at or
                                                                before its start to the one at or
                                                                behind its end
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace_server.log.integrity.verification import Boundary
from millrace_server.log.offset_index import OffsetIndex
from millrace_server.log.segment import Segment


class Piece(NamedTuple):
    """Ends before `end_offset`; `size_bytes` is what it takes on the disk."""

    end_offset: int
    size_bytes: int


def split(
    segments: Sequence[Segment],
    *,
    start_offset: int,
    end_offset: int,
    piece_bytes: int,
    pieces_max: int,
) -> list[Piece]:
    """Cuts `[start_offset, end_offset)` into pieces of at least `piece_bytes`; the last is smaller.

    Each but the last has less than `piece_bytes`, one index interval and one batch together.
    `start_offset < end_offset`, and `segments` are those that hold the range, in order. Stops at
    `pieces_max`, and behind a piece that reaches another segment: so indexes are read three times
    at most. Raises `CorruptLog` and `OSError`.
    """
    cutter = _Cutter(segments, start_offset, end_offset)
    pieces: list[Piece] = []
    reached = start_offset
    while reached < end_offset and len(pieces) < pieces_max and not cutter.has_crossed:
        pieces.append(cutter.cut(piece_bytes))
        reached = pieces[-1].end_offset
    return pieces


class _Cutter:
    """Cuts one piece after another from a range, and reads as few indexes as that takes."""

    def __init__(self, segments: Sequence[Segment], start_offset: int, end_offset: int) -> None:
        self._segments = segments
        self._end_offset = end_offset
        self._number = 0
        self._indexed = -1
        self._index = OffsetIndex()
        self._position = self._floor_position(start_offset)

    @property
    def has_crossed(self) -> bool:
        """Whether the last piece ended in another segment than the range begins in."""
        return self._number > 0

    def cut(self, piece_bytes: int) -> Piece:
        """The next piece; there is something left to cut."""
        size_bytes = 0
        while True:
            segment = self._segments[self._number]
            stop = self._stop(segment)
            wanted = self._position + piece_bytes - size_bytes
            if wanted < stop.position:
                stop = self._boundary_from(segment, wanted, stop)
            size_bytes += stop.position - self._position
            if stop.offset < segment.end_offset:
                self._position = stop.position
            else:
                self._number += 1
                self._position = 0
            if stop.offset >= self._end_offset or wanted <= stop.position:
                return Piece(stop.offset, size_bytes)

    def _stop(self, segment: Segment) -> Boundary:
        """Where the range leaves a segment: at an offset of its own, or at the segment's end."""
        end_offset = self._end_offset
        if end_offset >= segment.end_offset:
            return Boundary(segment.size_bytes, segment.end_offset)
        found = self._index_of(segment).ceiling_offset(end_offset - segment.base_offset)
        return Boundary(segment.size_bytes if found is None else found[1], end_offset)

    def _boundary_from(self, segment: Segment, position: int, stop: Boundary) -> Boundary:
        """The first known boundary at or behind `position`, `stop` if that comes first."""
        found = self._index_of(segment).above_position(position - 1)
        if found is None:
            return stop
        cut = Boundary(found[1], segment.base_offset + found[0])
        return cut if cut.offset < stop.offset else stop

    def _floor_position(self, offset: int) -> int:
        segment = self._segments[0]
        if offset == segment.base_offset:
            return 0
        return self._index_of(segment).floor_offset(offset - segment.base_offset)[1]

    def _index_of(self, segment: Segment) -> OffsetIndex:
        if self._indexed != self._number:
            self._index = segment.peek_index()
            self._indexed = self._number
        return self._index
