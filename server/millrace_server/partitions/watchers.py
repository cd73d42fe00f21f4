"""The requests that watch a partition: called when its high watermark has moved.

Owns the order, and that many of them do not hold up one append: a few are called within the call
that moved it, the others in chunks of the fair scheduler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from millrace_server.loop.fair_scheduler import FairScheduler

WATCHERS_AT_ONCE = 50
"""So many are called within the append that they waited for, some 150 us of work."""


class Watcher(Protocol):
    """A request that waits for more to read."""

    def on_moved(self) -> None:
        """The high watermark has moved, or the partition is out of service."""


class Watchers:
    """Called in the order in which they were added; of many moves meanwhile each is told once."""

    __slots__ = ("_has_moved", "_scheduler", "_to_call", "_watching")

    def __init__(self, scheduler: FairScheduler) -> None:
        self._scheduler = scheduler
        self._watching: dict[Watcher, None] = {}
        self._to_call: deque[Watcher] = deque()
        self._has_moved = False
        """Whether the high watermark moved again while some are still to be called."""

    def __len__(self) -> int:
        return len(self._watching)

    def __iter__(self) -> Iterator[Watcher]:
        return iter(self._watching)

    def add(self, watcher: Watcher) -> None:
        """Calls it from now on."""
        self._watching[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        """Does not call it any more; nothing happens to one that is not here."""
        self._watching.pop(watcher, None)

    def call(self) -> None:
        """Calls all of them, a few within this call."""
        if not self._watching:
            return
        if self._to_call:
            self._has_moved = True
            return
        self._to_call.extend(self._watching)
        self._call_some()

    def _call_some(self) -> None:
        to_call = self._to_call
        for _ in range(min(len(to_call), WATCHERS_AT_ONCE)):
            watcher = to_call.popleft()
            if watcher in self._watching:
                watcher.on_moved()
        if to_call:
            self._scheduler.enter(self._call_some)
        elif self._has_moved:
            self._has_moved = False
            self._to_call.extend(self._watching)
            self._scheduler.enter(self._call_some)
