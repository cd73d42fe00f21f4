"""Deadlines: many moments in the future, kept so that the next one is always known.

Owns the order of what is due. Reads no clock and keeps no timer; `net/alarm.py` is the shell
that does. Cancelling is cheap because most deadlines never come due: a long poll is answered, a
member heartbeats.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_STALE_MIN = 64
"""Fewer stale entries than this are not worth a rebuild."""


class Deadlines(Generic[K]):
    """At most one deadline per key. Equal deadlines come due in the order they were set.

    A cancelled or replaced entry stays in the heap until it surfaces or until stale entries
    outnumber live ones: `len(heap) <= 2 * len(self) + 64`.

    >>> deadlines = Deadlines[str]()
    >>> deadlines.set("poll", 500)
    >>> deadlines.set("session", 200)
    >>> deadlines.next_due_ms()
    200
    >>> deadlines.pop_due(200)
    ['session']
    """

    __slots__ = ("_heap", "_live", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, K]] = []
        self._live: dict[K, int] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def set(self, key: K, due_ms: int) -> None:
        """Sets or moves the key's deadline."""
        self._sequence += 1
        self._live[key] = self._sequence
        heapq.heappush(self._heap, (due_ms, self._sequence, key))
        self._drop_stale()

    def cancel(self, key: K) -> bool:
        """Forgets the key's deadline; False when it has none."""
        if self._live.pop(key, None) is None:
            return False
        self._drop_stale()
        return True

    def next_due_ms(self) -> int | None:
        """The earliest deadline, or None when there is none."""
        heap = self._heap
        while heap:
            due_ms, sequence, key = heap[0]
            if self._live.get(key) == sequence:
                return due_ms
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ms: int) -> list[K]:
        """Removes and returns the keys with a deadline at or before `now_ms`, earliest first."""
        due: list[K] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, sequence, key = heapq.heappop(heap)
            if self._live.get(key) == sequence:
                del self._live[key]
                due.append(key)
        return due

    def _drop_stale(self) -> None:
        stale = len(self._heap) - len(self._live)
        if stale > len(self._live) + _STALE_MIN:
            self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)
