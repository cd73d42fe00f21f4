"""The segment files of a directory, and which of them are in force.

Owns their names and the decision about those that compaction left beside each other. Refuses to
open them. Source: KAFKA-6264 and KAFKA-12520, where the names of files alone did not decide it.

What a crash of compaction, or of a removal, can leave beside what the checkpoint names:

    found                                how                                  becomes
    -----------------------------------  -----------------------------------  -----------------
    4096.2.cleaned                       it was being written                 removed
    an index without its .log            the same, or half removed            removed
    a generation above 0, not named      whole, and no checkpoint named it    removed
    generation 0, inside a named one of  the checkpoint named what it was     removed
      a generation above 0                 cleaned to
    before the first that is named       retention, after the checkpoint      removed
    generation 0, behind the last        rolled after the checkpoint          read
    generation 0, inside generation 0    not by a crash                       refused
    a named one is not there             not by a crash                       refused

Without a checkpoint the directory is read from its first offset on. At each offset the highest
generation there is whole (`cleaned_segment`), and what begins before its end was replaced by it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from millrace_server.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, SUFFIXES

_NAME_DIGITS: Final = 20
_SUFFIXES: Final = (*SUFFIXES, CLEANED_SUFFIX)


class SegmentName(NamedTuple):
    """What a segment's files are named for."""

    base_offset: int
    generation: int = 0


class Inventory:
    """`segments` are there with their records, in order; `scraps` are files of no segment."""

    def __init__(self, names: Iterable[str]) -> None:
        """Takes the names in a directory; other files are ignored."""
        found = [(name, *parsed) for name in names if (parsed := _parse(name)) is not None]
        there = {segment for _, segment, suffix in found if suffix == LOG_SUFFIX}
        self.segments: list[SegmentName] = sorted(there)
        self.scraps: list[str] = sorted(
            name
            for name, segment, suffix in found
            if suffix == CLEANED_SUFFIX or segment not in there
        )

    def beside(
        self, named: Sequence[SegmentName]
    ) -> tuple[list[SegmentName], list[SegmentName]] | str:
        """Returns those to be removed and those behind the last of `named`, which is active.

        Or, as the end of a message, what is there that cannot be, or is not there that must be.
        """
        bases = [name.base_offset for name in named]
        others = set(self.segments)
        if not others.issuperset(named):
            return "not all of them are there"
        removed, later = [], []
        for name in sorted(others.difference(named)):
            place = bisect_right(bases, name.base_offset) - 1
            if place == len(named) - 1:
                if name.generation:
                    return f"one from offset {name.base_offset} on is cleaned, which is not closed"
                later.append(name)
            elif place < 0 or name.generation or named[place].generation:
                removed.append(name)
            else:
                return f"another one, from offset {name.base_offset} on, is between them"
        return removed, later

    def newest(self) -> tuple[list[SegmentName], list[SegmentName]]:
        """Returns the lower generations of each base offset, and the highest ones."""
        highest = dict(self.segments)
        return (
            [name for name in self.segments if name.generation < highest[name.base_offset]],
            [SegmentName(*name) for name in highest.items()],
        )


def is_replaced(name: SegmentName, *, by: SegmentName) -> bool:
    """Whether a segment that begins inside another is only left over, if no checkpoint says so.

    A cleaned one holds all that is left of what it covers. One that begins inside a segment that
    was not cleaned is the second part of what should have replaced that one.
    """
    return bool(by.generation or name.generation)


def _parse(name: str) -> tuple[SegmentName, str] | None:
    """Reads `4096.log`, or `4096.2.log` for generation 2, with the offset in 20 digits."""
    stem, dot, suffix = name.rpartition(".")
    suffix = dot + suffix
    if suffix not in _SUFFIXES:
        return None
    base, dot, generation = stem.partition(".")
    if len(base) != _NAME_DIGITS or not _is_number(base):
        return None
    if not dot:
        return SegmentName(int(base)), suffix
    if not _is_number(generation) or generation.startswith("0"):
        return None
    return SegmentName(int(base), int(generation)), suffix


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _NAME_DIGITS
