"""The segments of one log in order, and which of them holds an offset.

Owns the list, its open end, the memory of where reads ended, and how many files closed segments
hold open. Refuses to know what is durable and what reads.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from millrace_server.environment.seams import Disk
from millrace_server.log.corruption_survey import survey
from millrace_server.log.errors import CorruptLog
from millrace_server.log.integrity.corrupt_ranges import CorruptRange
from millrace_server.log.segment import Segment

_PLACES_KEPT: Final = 64
_CLOSED_OPEN_MAX: Final = 4


class Place(NamedTuple):
    """Where in a segment the batch begins whose first record has `offset`."""

    segment: Segment
    position: int
    offset: int


class SegmentChain:
    """One segment at least; the last is the active one, which grows.

    Each segment begins where the one before it ends. `unsettled` are those that were rolled and
    still have preallocated space and unsaved indexes; their files stay open.
    """

    __slots__ = (
        "_bases",
        "_closed_bytes",
        "_places",
        "_used",
        "active",
        "on_corruption",
        "segments",
        "unsettled",
    )

    def __init__(self, segments: list[Segment], *, settled_count: int) -> None:
        for segment in segments:
            segment.trust_nothing()
        self.on_corruption: Callable[[CorruptRange], None] = _ignore
        self.segments = segments
        self.active = segments[-1]
        self.unsettled = segments[settled_count:-1]
        self._bases = [segment.base_offset for segment in segments]
        self._closed_bytes = sum(segment.size_bytes for segment in segments[:-1])
        self._places: dict[int, Place] = {}
        self._used: list[Segment] = []

    @property
    def size_bytes(self) -> int:
        """The size of all batches."""
        return self._closed_bytes + self.active.size_bytes

    def find(self, offset: int) -> Place:
        """Where the batch that holds `offset` begins, or at the log's end will begin."""
        active = self.active
        if offset == active.end_offset:
            return Place(active, active.size_bytes, offset)
        place = self._places.get(offset)
        # A place remembered at the end of a segment is right only if the segment grew since.
        if place is not None and place.position < place.segment.size_bytes:
            return place
        segment = self.holding(offset)
        return Place(segment, *segment.boundary_of(offset))

    def holding(self, offset: int) -> Segment:
        """The segment in which `offset` lies, or will lie."""
        if offset >= self.active.base_offset:
            return self.active
        return self.segments[bisect_right(self._bases, offset) - 1]

    def between(self, start_offset: int, end_offset: int) -> list[Segment]:
        """The segments in which the offsets `[start_offset, end_offset)` lie."""
        first = bisect_right(self._bases, start_offset) - 1
        return self.segments[first : bisect_left(self._bases, end_offset)]

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Keeps where a read ended: the next one begins there."""
        places = self._places
        if offset not in places:
            if len(places) >= _PLACES_KEPT:
                del places[next(iter(places))]
            places[offset] = Place(segment, position, offset)

    def found_corruption(self, segment: Segment, found: CorruptLog) -> None:
        """Remembers a range that is not as it was, and passes a new one to `on_corruption`."""
        known = segment.corrupt_ranges.from_position(found.position)
        if known is not None and known.position <= found.position:
            return
        corrupt_range = survey(segment, found)
        segment.corrupt_ranges.add(corrupt_range)
        self.on_corruption(corrupt_range)

    def roll(self, disk: Disk, directory: str, *, index_interval_bytes: int) -> Segment:
        """Begins a new active segment at the end. Raises `OSError`; nothing is changed then."""
        rolled = self.active
        fresh = Segment.create(
            disk, directory, rolled.end_offset, index_interval_bytes=index_interval_bytes
        )
        self.unsettled.append(rolled)
        self._closed_bytes += rolled.size_bytes
        self.segments.append(fresh)
        self._bases.append(fresh.base_offset)
        self.active = fresh
        return fresh

    def settle(self, segment: Segment) -> None:
        """Notes that a rolled segment is trimmed and its indexes are saved."""
        segment.are_indexes_saved = True
        self.unsettled.remove(segment)
        if segment in self.segments:
            self.keep_open(segment)

    def keep_open(self, segment: Segment) -> None:
        """Marks a closed segment as just used; closes the one that was used longest ago."""
        used = self._used
        if (used and used[-1] is segment) or segment is self.active or segment in self.unsettled:
            return
        if segment in used:
            used.remove(segment)
        used.append(segment)
        if len(used) > _CLOSED_OPEN_MAX:
            used.pop(0).close_files()

    def drop_first(self, count: int) -> list[Segment]:
        """Takes the oldest segments off; a reader keeps the file that it holds."""
        return self._take_off(0, count)

    def replace(self, replaced: Sequence[Segment], cleaned: Sequence[Segment]) -> bool:
        """Puts `cleaned` in the place of neighbours that end where they do.

        False, and nothing changes, if these are not all there, closed and settled.
        """
        try:
            first = self.segments.index(replaced[0])
        except ValueError:
            return False
        end = first + len(replaced)
        if (
            self.segments[first:end] != list(replaced)
            or self.active in replaced
            or any(segment in replaced for segment in self.unsettled)
        ):
            return False
        self._take_off(first, end)
        self.segments[first:first] = cleaned
        self._bases[first:first] = [segment.base_offset for segment in cleaned]
        self._closed_bytes += sum(segment.size_bytes for segment in cleaned)
        return True

    def truncate(self, front: Segment) -> None:
        """Makes `front`, the front of a segment, the active one; what was behind it goes.

        No segment may be unsettled.
        """
        at = bisect_left(self._bases, front.base_offset)
        self._take_off(at, len(self.segments))
        self.segments.append(front)
        self._bases.append(front.base_offset)
        self.active = front
        self._closed_bytes = sum(segment.size_bytes for segment in self.segments[:-1])

    def replace_all(self, fresh: Segment) -> list[Segment]:
        """Makes `fresh` the only segment; returns the others. No segment may be unsettled."""
        others = self._take_off(0, len(self.segments))
        self.segments.append(fresh)
        self._bases.append(fresh.base_offset)
        self.active = fresh
        self._closed_bytes = 0
        return others

    def close_files(self) -> None:
        """Releases every file."""
        for segment in self.segments:
            segment.close_files()

    def _take_off(self, first: int, end: int) -> list[Segment]:
        """Takes out the closed segments `[first, end)`, by index."""
        dropped = self.segments[first:end]
        del self.segments[first:end], self._bases[first:end]
        self._places.clear()
        for segment in dropped:
            self._closed_bytes -= segment.size_bytes
            if segment in self._used:
                self._used.remove(segment)
            segment.close_files()
        return dropped


def _ignore(corrupt_range: CorruptRange) -> None:
    """In the place of `on_corruption` until it is set."""
