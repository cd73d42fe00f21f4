"""The ranges of a segment that are known to be corrupt, and that no reader is given.

Owns the list and the search in it. Refuses to know how a range was found, and to change anything:
what is on the disk stays as evidence. A range is known until it is repaired from another replica,
the log is opened again or the segment is removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Final

from millrace_server.log.errors import LogRefusal

CORRUPT_RANGES_MAX: Final = 64
"""In one segment; beyond it neighbours are taken for one range, with what is between them."""
_END_POSITION: Final = attrgetter("end_position")
_END_OFFSET: Final = attrgetter("end_offset")


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """Bytes `[position, end_position)` of a file, with the records `[offset, end_offset)`.

    Begins at the batch that is not as it was, and ends with the next one that can be found again.
    """

    path: str
    position: int
    end_position: int
    offset: int
    end_offset: int
    message: str


class CorruptRecords(LogRefusal):
    """Records that were written and cannot be read: the disk has changed them, or lost them."""

    def __init__(self, found: CorruptRange) -> None:
        super().__init__(
            f"{found.path} at byte {found.position}: {found.message}; offsets {found.offset} to "
            f"{found.end_offset - 1} cannot be read, and nothing was changed. Restore the file "
            f"from a copy while the broker is stopped, or seek to offset {found.end_offset} to go "
            "on behind them"
        )
        self.corrupt_range = found


class RecordsUnderRepair(LogRefusal):
    """Corrupt records that are being fetched from another replica: try again."""

    def __init__(self, found: CorruptRange) -> None:
        super().__init__(
            f"{found.path} at byte {found.position}: {found.message}; offsets {found.offset} to "
            f"{found.end_offset - 1} are being fetched from another replica, try again"
        )


class CorruptRanges:
    """The ranges of one segment: disjoint, in rising order. False while there are none."""

    __slots__ = ("_ranges", "under_repair")

    def __init__(self) -> None:
        self._ranges: list[CorruptRange] = []
        self.under_repair: CorruptRange | None = None
        """The one that another replica's bytes are being fetched for."""

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[CorruptRange]:
        return iter(self._ranges)

    def from_position(self, position: int) -> CorruptRange | None:
        """The first range that ends behind `position`."""
        at = bisect_right(self._ranges, position, key=_END_POSITION)
        return self._ranges[at] if at < len(self._ranges) else None

    def holding(self, offset: int) -> CorruptRange | None:
        """The range in which `offset` lies."""
        at = bisect_right(self._ranges, offset, key=_END_OFFSET)
        if at < len(self._ranges) and self._ranges[at].offset <= offset:
            return self._ranges[at]
        return None

    def before(self, offset: int) -> CorruptRange | None:
        """The last range that ends at or before `offset`."""
        at = bisect_right(self._ranges, offset, key=_END_OFFSET) - 1
        return self._ranges[at] if at >= 0 else None

    def refusal(self, one: CorruptRange) -> CorruptRecords | RecordsUnderRepair:
        """Why a reader does not get a range."""
        return RecordsUnderRepair(one) if one == self.under_repair else CorruptRecords(one)

    def remove(self, one: CorruptRange) -> None:
        """The range is as it was written."""
        self._ranges.remove(one)

    def add(self, one: CorruptRange) -> None:
        """Adds a range that begins in none of the others."""
        ranges = self._ranges
        at = bisect_right(ranges, one.position, key=_END_POSITION)
        ranges.insert(at, one)
        while at + 1 < len(ranges) and ranges[at + 1].position < ranges[at].end_position:
            self._join(at)
        if len(ranges) > CORRUPT_RANGES_MAX:
            gaps = [after.position - before.end_position for before, after in pairwise(ranges)]
            self._join(gaps.index(min(gaps)))

    def _join(self, at: int) -> None:
        first, second = self._ranges[at : at + 2]
        self._ranges[at : at + 2] = [
            CorruptRange(
                first.path,
                first.position,
                max(first.end_position, second.end_position),
                first.offset,
                max(first.end_offset, second.end_offset),
                first.message,
            )
        ]
