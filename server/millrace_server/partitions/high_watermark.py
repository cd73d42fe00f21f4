"""The high watermark of a partition: how far its records are committed, and what waits for that.

Owns the offset, the appends that wait for their acks, the requests that watch for more to read, and
the count of bytes that have become readable. Refuses to know what commits a record: the partition
does, or the quorum of the metadata log.
"""

from __future__ import annotations

from collections import deque

from millrace_server.partitions.ack_purgatory import AckPurgatory
from millrace_server.partitions.watchers import Watchers


class HighWatermark:
    """Invariant: `offset` never goes back."""

    __slots__ = ("acks", "offset", "readable_bytes", "unreadable", "watchers")

    def __init__(self, offset: int, watchers: Watchers) -> None:
        self.offset = offset
        """The first offset that consumers may not read yet."""
        self.acks = AckPurgatory()
        self.watchers = watchers
        self.readable_bytes = 0
        """Bytes of the batches that the offset has passed since the partition was opened: a parked
        fetch counts with it what has come."""
        self.unreadable: deque[tuple[int, int]] = deque()
        """End offset and size of the batches that it has not passed, in order; an append adds its
        own."""

    def note_truncated(self, end_offset: int) -> None:
        """Forgets the batches behind `end_offset`."""
        while self.unreadable and self.unreadable[-1][0] > end_offset:
            self.unreadable.pop()

    def advance(self, offset: int) -> None:
        """Moves to `offset`, and calls what has waited; an older one changes nothing."""
        if offset > self.offset:
            self.offset = offset
            unreadable = self.unreadable
            while unreadable and unreadable[0][0] <= offset:
                self.readable_bytes += unreadable.popleft()[1]
            self.acks.advance(offset)
            self.watchers.call()
