"""One timer of the event loop for any number of deadlines.

Owns the timer; the order is `deadlines.py`'s, and what happens when one is due is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from millrace_server.environment.seams import Clock
from millrace_server.loop.deadlines import Deadlines

K = TypeVar("K", bound=Hashable)


class Alarm(Generic[K]):
    """Calls `ring(key)` when the key's deadline has passed, never before.

    The timer is only ever moved forward when an earlier deadline is set; one that was cancelled
    costs a call that finds nothing due.
    """

    __slots__ = ("_armed_ms", "_clock", "_deadlines", "_loop", "_ring", "_timer")

    def __init__(
        self, clock: Clock, loop: asyncio.AbstractEventLoop, ring: Callable[[K], None]
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._ring = ring
        self._deadlines: Deadlines[K] = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: K, due_ms: int) -> None:
        """Sets or moves a deadline, in milliseconds of the monotonic clock."""
        self._deadlines.set(key, due_ms)
        if self._timer is None or due_ms < self._armed_ms:
            self._arm(due_ms)

    def cancel(self, key: K) -> bool:
        """Forgets a deadline; False when the key has none."""
        return self._deadlines.cancel(key)

    def close(self) -> None:
        """Stops the timer; nothing rings any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = due_ms
        delay_ms = max(0, due_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        due = self._deadlines.pop_due(self._clock.monotonic_ms())
        next_due_ms = self._deadlines.next_due_ms()
        if next_due_ms is not None:
            self._arm(next_due_ms)
        for key in due:
            self._ring(key)
