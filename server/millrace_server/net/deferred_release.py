"""What lost connections leave behind: answers that nobody will get, let go of a little at a time.

Owns their parts until each is released, and who is told then: until that, the memory is held, and
counts. One connection may leave tens of thousands of slices, which took 20 ms at once, and
everybody waited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from millrace_server.environment.seams import FileSlice, ReplyPart
from millrace_server.loop.fair_scheduler import FairScheduler

PIECE_PARTS = 300
"""Let go of at once, in some 200 us."""
TURNS_MAX = 64
"""In so many turns all that waits is let go of: the pieces grow with it, or it would grow where
many connections come and go."""
PARTS_MAX = 400_000
"""Kept waiting; what is beyond is let go of at once."""


class DeferredRelease:
    """Takes answers that will not be sent, and releases their slices: a few now, many in turns."""

    __slots__ = ("_count", "_left", "_turns")

    def __init__(self, turns: FairScheduler) -> None:
        self._turns = turns
        self._left: deque[tuple[deque[ReplyPart], Callable[[], None]]] = deque()
        self._count = 0
        """Parts in all of them."""

    def take(self, parts: deque[ReplyPart], on_released: Callable[[], None]) -> None:
        """Empties `parts`, sooner or later, and calls `on_released` then."""
        if not parts:
            on_released()
            return
        has_turn = bool(self._left)
        self._left.append((parts, on_released))
        self._count += len(parts)
        self._release(max(0, self._count - PARTS_MAX))
        if not has_turn:
            self._release_some()

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
            parts, on_released = self._left[0]
            now = min(count, len(parts))
            count -= now
            for _ in range(now):
                part = parts.pop()
                if isinstance(part, FileSlice):
                    part.release()
            if not parts:
                self._left.popleft()
                on_released()
