"""Bytes that arrive later, in the order in which they were sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class DelayLine:
    """One direction of a connection. `deliver` gets each piece when its time has come.

    A shorter delay lets nothing overtake what is on its way.
    """

    def __init__(self, deliver: Callable[[bytes], None]) -> None:
        self._deliver = deliver
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        """Whether something is on its way."""
        return bool(self._pieces)

    def send(self, data: bytes, delay_s: float) -> None:
        """Has data arrive after so long, and not before what was sent earlier."""
        due_s = asyncio.get_running_loop().time() + delay_s
        if self._pieces:
            due_s = max(due_s, self._pieces[-1][0])
        self._pieces.append((due_s, data))
        if self._timer is None:
            self._wait()

    def flush(self) -> None:
        """Has everything arrive now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pieces:
            self._deliver(self._pieces.popleft()[1])

    def drop(self) -> None:
        """Nothing of it will arrive."""
        self._pieces.clear()
        self.flush()

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self._pieces[0][0], self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        while self._pieces and self._pieces[0][0] <= now_s:
            self._deliver(self._pieces.popleft()[1])
        if self._pieces and self._timer is None:
            self._wait()
