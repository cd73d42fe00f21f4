"""What one connection holds of the memory that all share, and whether it may hold more.

Owns the connection's account with the budget (`net/memory.py`). Knows sizes only.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace_server.net.memory_budget import MemoryBudget

UNGATED_BYTES = 20 << 10
"""Frames up to this size never wait for the shared memory, so that heartbeats, greetings and
small batches pass while large frames queue."""


class MemoryAccount:
    """One connection's account. `granted` is called when a frame that waited may be received.

    `charged` is what the budget counts for this connection: after `settle(held)` it is the
    unfinished frame plus `held`, the bytes of requests in progress and answers not yet sent.
    """

    __slots__ = (
        "_awaited_bytes",
        "_budget",
        "_buffered_bytes_max",
        "_charged_bytes",
        "_granted",
        "frame_bytes",
        "held_back",
    )

    def __init__(
        self, budget: MemoryBudget, buffered_bytes_max: int, granted: Callable[[], None]
    ) -> None:
        self._budget = budget
        self._buffered_bytes_max = buffered_bytes_max
        self._granted = granted
        self._charged_bytes = 0
        self._awaited_bytes = 0
        self.frame_bytes = 0
        """Size of the private buffer of the unfinished frame."""
        self.held_back = False
        """The unfinished frame waits until this connection itself holds less."""

    @property
    def waits(self) -> bool:
        """Whether the unfinished frame has no place yet."""
        return self.held_back or self._awaited_bytes > 0

    def place_frame(self, size: int, held: int) -> bool:
        """Whether `size` bytes of a frame may be received now; asked again when it needs more.

        If not, the caller asks again when it holds less (`held_back`), or is called.
        """
        if self._awaited_bytes:
            return False
        self.held_back = held > 0 and held + size > self._buffered_bytes_max
        if self.held_back:
            return False
        if size > UNGATED_BYTES:
            more = size - self.frame_bytes
            if not self._budget.reserve(more, self._on_granted, grows=self.frame_bytes > 0):
                self._awaited_bytes = size
                return False
            self._charged_bytes += more
        self.frame_bytes = size
        return True

    def settle(self, held: int) -> None:
        """Tells the budget what has changed."""
        held += self.frame_bytes
        if held != self._charged_bytes:
            change, self._charged_bytes = held - self._charged_bytes, held
            self._budget.charge(change)

    def end_frame(self) -> None:
        """The frame is whole; what it still holds is among the bytes held."""
        self.frame_bytes = 0
        self._budget.ended(self._on_granted)

    def drop_frame(self) -> None:
        """The unfinished frame is not wanted any more."""
        self.end_frame()
        self.held_back = False
        if self._awaited_bytes:
            self._awaited_bytes = 0
            self._budget.withdraw(self._on_granted)

    def close(self) -> None:
        """Gives everything back."""
        self.drop_frame()
        self.settle(0)

    def disconnect(self) -> None:
        """Calls `granted` no more: the connection is gone, and may be freed before `close`."""
        self._granted = _ignore

    def _on_granted(self) -> None:
        self._charged_bytes += self._awaited_bytes - self.frame_bytes
        self.frame_bytes, self._awaited_bytes = self._awaited_bytes, 0
        self._granted()


def _ignore() -> None:
    """Stands in for the callback of a connection that is gone."""
