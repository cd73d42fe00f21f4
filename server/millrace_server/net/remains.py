"""What lost connections leave behind: answers that nobody will get, let go of a little at a time.

Owns their file slices until each is released. One connection may leave tens of thousands of them,
which took 20 ms at once, and everybody waited.
"""

from __future__ import annotations

from collections import deque

from millrace_server.host import FileSlice, Reply, ReplyPart
from millrace_server.net.turns import Turns

PIECE_PARTS = 300
"""Let go of at once, in some 200 us."""
TURNS_MAX = 64
"""In so many turns all that waits is let go of: the pieces grow with it, or it would grow where
many connections come and go."""
PARTS_MAX = 400_000
"""Kept waiting; what is beyond is let go of at once."""

Parts = Reply | deque[ReplyPart]


class Remains:
    """Takes answers that will not be sent, and releases their slices: a few now, many in turns."""

    __slots__ = ("_count", "_left", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._left: deque[Parts] = deque()
        self._count = 0
        """Parts in all of them."""

    def take(self, left: list[Parts]) -> None:
        """Empties them, sooner or later; the caller has no more to do with them."""
        has_turn = bool(self._left)
        self._left += [parts for parts in left if parts]
        self._count += sum(map(len, left))
        if not has_turn:
            self._release_some()
        elif self._count > PARTS_MAX:
            self._release(self._count - PARTS_MAX)

    def release_all(self) -> None:
        """Releases what is left now: no turn will come."""
        self._release(self._count)

    def _release_some(self) -> None:
        self._release(min(max(PIECE_PARTS, self._count // TURNS_MAX), self._count))
        if self._left:
            self._turns.enter(self._release_some)

    def _release(self, count: int) -> None:
        self._count -= count
        while count:
            parts = self._left[0]
            for _ in range(min(count, len(parts))):
                count -= 1
                part = parts.pop()
                if isinstance(part, FileSlice):
                    part.release()
            if not parts:
                self._left.popleft()
