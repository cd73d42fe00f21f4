"""The memory that all connections of a server share for requests and unsent answers.

Owns one number and a queue of those who wait for it to shrink. Knows nothing of connections:
a waiting frame is called back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Counts bytes against a limit and grants requests in the order they were made.

    `reserve` asks first; `charge` does not ask, for bytes that are there already, so `used` can
    pass `size` by what the connections hold in small pieces. No frame overtakes a waiting one, so a
    large frame is not starved by a stream of smaller ones.

    Frames grow while they are received, and those that have begun go before those that have not.
    If all of them waited for each other none would ever end: so one at a time, the favoured, may
    pass `size`, by no more than `overdraft`, the size of a frame, until it has ended.
    """

    __slots__ = ("_favoured", "_growing", "_waiting", "overdraft", "size", "used")

    def __init__(self, size: int, *, overdraft: int) -> None:
        self.size = size
        self.overdraft = overdraft
        self.used = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._growing: deque[tuple[int, Callable[[], None]]] = deque()
        self._favoured: Callable[[], None] | None = None

    @property
    def exhausted(self) -> bool:
        return self.used >= self.size

    @property
    def waiting_count(self) -> int:
        return len(self._waiting) + len(self._growing)

    def reserve(self, size: int, granted: Callable[[], None], *, grows: bool = False) -> bool:
        """True when `size` bytes are now the caller's; else `granted` is called when they are.

        `grows`: they are more of a frame that holds some already. `size` is at most the budget's,
        so that every waiter's turn comes. A caller waits for one thing at a time.
        """
        if size > self.size:
            raise ValueError(f"{size} bytes of a budget of {self.size} can never be granted")
        waiting = self._growing if grows else self._waiting
        if not (self._growing or waiting) and self.used + size <= self.size:
            self.used += size
            return True
        if not grows or self._favoured not in (None, granted):
            waiting.append((size, granted))
            return False
        self._favoured = granted
        if self.used + size <= self.size + self.overdraft:
            self.used += size
            return True
        waiting.appendleft((size, granted))
        return False

    def withdraw(self, granted: Callable[[], None]) -> None:
        """Forgets a waiter; nothing happens when it does not wait."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)
        self._growing = deque(entry for entry in self._growing if entry[1] != granted)
        self._grant()

    def ended(self, granted: Callable[[], None]) -> None:
        """The frame of this caller grows no more; another may be favoured."""
        if self._favoured == granted:
            self._favoured = None
            self._grant()

    def charge(self, change: int) -> None:
        """Adds bytes that are held already, or gives back (`change < 0`) what was."""
        self.used += change
        if change < 0 and self.waiting_count:
            self._grant()

    def _grant(self) -> None:
        for waiting in (self._growing, self._waiting):
            while waiting and self.used + waiting[0][0] <= self.size:
                self._give(waiting)
            if waiting:
                break
        if not self._growing:
            return
        size, granted = self._growing[0]
        if self._favoured is None:
            self._favoured = granted
        if self._favoured == granted and self.used + size <= self.size + self.overdraft:
            self._give(self._growing)

    def _give(self, waiting: deque[tuple[int, Callable[[], None]]]) -> None:
        size, granted = waiting.popleft()
        self.used += size
        granted()
