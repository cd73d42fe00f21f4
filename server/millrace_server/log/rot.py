"""What is known to have changed on the disk: stretches of a segment that nobody is given.

Owns the list and the search in it. Refuses to know how a stretch was found, and to change
anything: what is on the disk stays as evidence, and is known until the log is opened anew or the
segment goes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Final

ROTS_MAX: Final = 64
"""In one segment; beyond it neighbours are taken for one stretch, with what is between them."""
_END_POSITION: Final = attrgetter("end_position")
_END_OFFSET: Final = attrgetter("end_offset")


@dataclass(frozen=True, slots=True)
class Rot:
    """Bytes `[position, end_position)` of a file, with the records `[offset, end_offset)`.

    Begins at the batch that is not as it was, and ends with the next one that can be found again.
    """

    path: str
    position: int
    end_position: int
    offset: int
    end_offset: int
    message: str


class Rots:
    """The stretches of one segment: disjoint, in rising order. False while there are none."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: list[Rot] = []

    def __len__(self) -> int:
        return len(self._stretches)

    def __iter__(self) -> Iterator[Rot]:
        return iter(self._stretches)

    def from_position(self, position: int) -> Rot | None:
        """The first stretch that ends behind `position`."""
        at = bisect_right(self._stretches, position, key=_END_POSITION)
        return self._stretches[at] if at < len(self._stretches) else None

    def holding(self, offset: int) -> Rot | None:
        """The stretch in which `offset` lies."""
        at = bisect_right(self._stretches, offset, key=_END_OFFSET)
        if at < len(self._stretches) and self._stretches[at].offset <= offset:
            return self._stretches[at]
        return None

    def before(self, offset: int) -> Rot | None:
        """The last stretch that ends at or before `offset`."""
        at = bisect_right(self._stretches, offset, key=_END_OFFSET) - 1
        return self._stretches[at] if at >= 0 else None

    def add(self, rot: Rot) -> None:
        """Adds a stretch that begins in none of the others."""
        stretches = self._stretches
        at = bisect_right(stretches, rot.position, key=_END_POSITION)
        stretches.insert(at, rot)
        while at + 1 < len(stretches) and stretches[at + 1].position < stretches[at].end_position:
            self._join(at)
        if len(stretches) > ROTS_MAX:
            gaps = [following.position - rot.end_position for rot, following in pairwise(stretches)]
            self._join(gaps.index(min(gaps)))

    def _join(self, at: int) -> None:
        first, second = self._stretches[at : at + 2]
        self._stretches[at : at + 2] = [
            Rot(
                first.path,
                first.position,
                max(first.end_position, second.end_position),
                first.offset,
                max(first.end_offset, second.end_offset),
                first.message,
            )
        ]
