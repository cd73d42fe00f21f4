"""Which bytes of a segment were checked since the process began: as appended, or as read.

Owns a few ranges of positions. Refuses to know what is in the page cache now: bytes that were
checked may have left it, and what comes back from the disk is checked again by its reader.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

RANGES_MAX: Final = 16
"""Beyond it the smallest is forgotten, which costs one more check."""
READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""How far behind a read the kernel may bring bytes into the page cache that no reader asked for:
128 KiB by default, and some set megabytes. Not reading ahead (POSIX_FADV_RANDOM) would spare this
account, and makes reading old data two to three times slower."""
_PAGE_BYTES: Final = 64 * 1024
"""The largest page of any Linux: a read brings whole pages."""
_END: Final = 2**63


class Verified:
    """Disjoint ranges in rising order. Everything appended from `position` on is one of them."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, position: int) -> None:
        self._starts = [position]
        self._ends = [_END]

    def covers(self, position: int, end_position: int) -> bool:
        """Whether all of a range was checked."""
        at = bisect_right(self._starts, position) - 1
        return at >= 0 and end_position <= self._ends[at]

    def note(self, position: int, end_position: int) -> None:
        """A range was checked."""
        starts, ends = self._starts, self._ends
        first, last = bisect_left(ends, position), bisect_right(starts, end_position)
        if first < last:
            position, end_position = min(position, starts[first]), max(end_position, ends[last - 1])
        starts[first:last], ends[first:last] = [position], [end_position]
        if len(starts) > RANGES_MAX:
            sizes = [end - start for start, end in zip(starts, ends, strict=True)]
            smallest = sizes.index(min(sizes))
            del starts[smallest], ends[smallest]

    def note_read(self, position: int, end_position: int, *, file_end: int) -> None:
        """A range was read and not checked: it, and what came with it, may be new from the disk.

        What is appended at `file_end` from now on is not.
        """
        end_position = min(end_position + READ_AHEAD_BYTES, file_end)
        self._forget(position - position % _PAGE_BYTES, end_position)

    def note_read_ahead(self, position: int, *, file_end: int) -> None:
        """Something was read up to `position`: what came behind it may be new from the disk."""
        self._forget(position, min(position + READ_AHEAD_BYTES, file_end))

    def _forget(self, position: int, end_position: int) -> None:
        starts, ends = self._starts, self._ends
        first, last = bisect_right(ends, position), bisect_left(starts, end_position)
        if first >= last or position >= end_position:
            return
        kept = [
            (start, end)
            for start, end in ((starts[first], position), (end_position, ends[last - 1]))
            if start < end
        ]
        starts[first:last] = [start for start, _ in kept]
        ends[first:last] = [end for _, end in kept]
