"""Responses of lost connections, whose file slices are released a few at a time.

Owns the parts until each is released, and calls back then: until that, the memory is held, and
counts. One connection may leave tens of thousands of slices, which take 20 ms to release, and all
other connections would wait. (Redis calls this lazyfree.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from millrace_server.environment.seams import FileSlice, ResponsePart
from millrace_server.loop.fair_scheduler import FairScheduler

CHUNK_PARTS = 300
"""Released in one chunk, in some 200 us."""
CHUNKS_MAX = 64
"""Everything that waits is released in so many chunks: they grow with it, or it would grow without
bound where many connections come and go."""
PARTS_MAX = 400_000
"""Parts that wait; those beyond are released at once."""


class DeferredRelease:
    """Takes responses that will not be sent, and releases their slices in chunks."""

    __slots__ = ("_count", "_left", "_scheduler")

    def __init__(self, scheduler: FairScheduler) -> None:
        self._scheduler = scheduler
        self._left: deque[tuple[deque[ResponsePart], Callable[[], None]]] = deque()
        self._count = 0
        """Parts in all of them."""

    def take(self, parts: deque[ResponsePart], on_released: Callable[[], None]) -> None:
        """Empties `parts`, sooner or later, and calls `on_released` then."""
        if not parts:
            on_released()
            return
        is_scheduled = bool(self._left)
        self._left.append((parts, on_released))
        self._count += len(parts)
        self._release(max(0, self._count - PARTS_MAX))
        if not is_scheduled:
            self._release_some()

    def release_all(self) -> None:
        """Releases what is left now, because no chunk will run any more."""
        self._release(self._count)

    def _release_some(self) -> None:
        self._release(min(max(CHUNK_PARTS, self._count // CHUNKS_MAX), self._count))
        if self._left:
            self._scheduler.enter(self._release_some)

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
