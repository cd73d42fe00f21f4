"""Appends that wait for the high watermark, in the order of their offsets.

Owns the waiting entries of one partition. Pure: the partition calls `advance` when its high
watermark has moved, and each entry is called back within that call, so that an ack does not wait
for another pass of the event loop. Kafka's name for such a place is purgatory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

OnAck = Callable[[Exception | None], None]
"""Called once: with None when the records are below the high watermark, else with the error."""


class AckPurgatory:
    """Entries `(end_offset, on_ack)`; `failure` is the error that every later entry gets."""

    __slots__ = ("_entries", "failure")

    def __init__(self) -> None:
        self._entries: deque[tuple[int, OnAck]] = deque()
        self.failure: Exception | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def wait(self, end_offset: int, on_ack: OnAck) -> None:
        """Adds an entry that ends when the high watermark, which is lower, reaches `end_offset`."""
        if self.failure is not None:
            on_ack(self.failure)
        else:
            self._entries.append((end_offset, on_ack))

    def advance(self, high_watermark: int) -> None:
        """Ends every entry at or below `high_watermark`.

        Entries are in the order of their offsets, but for repeated batches, which wait for an
        older offset: such an entry ends together with the younger one before it.
        """
        entries = self._entries
        while entries and entries[0][0] <= high_watermark:
            entries.popleft()[1](None)

    def end(self, error: Exception) -> None:
        """Ends every entry with `error`; later ones wait again."""
        while self._entries:
            self._entries.popleft()[1](error)

    def fail(self, error: Exception) -> None:
        """Ends every entry, and each later one, with `error`."""
        if self.failure is None:
            self.failure = error
        self.end(error)
