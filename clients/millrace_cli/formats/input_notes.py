"""What a user should know about an input that was sent all the same: counted, with the first place.

Owns the counting. Bounded: the kinds of notes are few, and columns are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TEXT_CHARS_MAX = 40
LINES_MAX = 10


@dataclass(slots=True)
class InputNotes:
    """Notes by what is the matter, with the first line it was found in."""

    _found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, matter: str, input_name: str, line: int, text: str) -> None:
        """Notes that a line has it."""
        count, place = self._found.get(matter, (0, ""))
        self._found[matter] = (
            count + 1,
            place or f"{input_name} line {line}, {text[:TEXT_CHARS_MAX]!r}",
        )

    def lines(self) -> list[str]:
        """A sentence for each, at most `LINES_MAX`."""
        found = [
            f"{matter}: {count:,} time{'' if count == 1 else 's'}, first in {place}"
            for matter, (count, place) in self._found.items()
        ]
        if len(found) > LINES_MAX:
            found[LINES_MAX:] = [f"and {len(found) - LINES_MAX} more notes of this kind"]
        return found
