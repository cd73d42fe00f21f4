"""The memory that all connections of a server share for requests and unsent answers.

Owns one number and a queue of those who wait for it to shrink. Knows nothing of connections:
whoever waits is called back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Counts bytes against a limit and grants large requests in the order they were made.

    `reserve` asks first; `charge` does not ask, for bytes that are there already, so `used` can
    pass `size` by what the connections hold in small pieces. Nobody overtakes a waiter, so a
    large frame is not starved by a stream of smaller ones.
    """

    __slots__ = ("_waiting", "size", "used")

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def exhausted(self) -> bool:
        return self.used >= self.size

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def reserve(self, size: int, granted: Callable[[], None]) -> bool:
        """True when `size` bytes are now the caller's; else `granted` is called when they are.

        `size` is at most the budget's, so that every waiter's turn comes.
        """
        if size > self.size:
            raise ValueError(f"{size} bytes of a budget of {self.size} can never be granted")
        if not self._waiting and self.used + size <= self.size:
            self.used += size
            return True
        self._waiting.append((size, granted))
        return False

    def withdraw(self, granted: Callable[[], None]) -> None:
        """Forgets a waiter; nothing happens when it does not wait."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)
        self._grant()

    def charge(self, change: int) -> None:
        """Adds bytes that are held already, or gives back (`change < 0`) what was."""
        self.used += change
        if change < 0 and self._waiting:
            self._grant()

    def _grant(self) -> None:
        while self._waiting and self.used + self._waiting[0][0] <= self.size:
            size, granted = self._waiting.popleft()
            self.used += size
            granted()
