"""The bytes per second that followers outside the ISR may take from a leader.

One that was away reads old segments, which costs the disk and the network of the leader what its
clients need. Kafka's name: `leader.replication.throttled.rate`.
"""

from __future__ import annotations

from typing import Final

BURST_MS: Final = 1_000


class CatchUpThrottle:
    """A token bucket that holds what one second gives, and goes below zero by one response.

    >>> throttle = CatchUpThrottle(1_000, now_ms=0)
    >>> throttle.take(1_500, now_ms=0)
    >>> throttle.ready_ms(now_ms=0)
    501
    """

    __slots__ = ("_millibytes", "_now_ms", "bytes_per_second")

    def __init__(self, bytes_per_second: int, *, now_ms: int) -> None:
        """Raises `ValueError` unless the rate is positive."""
        if bytes_per_second <= 0:
            raise ValueError(f"a catch-up rate of {bytes_per_second} bytes/s stops replication")
        self.bytes_per_second = bytes_per_second
        self._now_ms = now_ms
        self._millibytes = bytes_per_second * BURST_MS

    def take(self, size_bytes: int, *, now_ms: int) -> None:
        """Counts bytes that were sent."""
        self._fill(now_ms)
        self._millibytes -= size_bytes * 1000

    def ready_ms(self, *, now_ms: int) -> int:
        """When the next byte may be sent: `now_ms` if it may be sent now."""
        self._fill(now_ms)
        if self._millibytes > 0:
            return now_ms
        return now_ms + 1 - self._millibytes // self.bytes_per_second

    def _fill(self, now_ms: int) -> None:
        if now_ms > self._now_ms:
            gained = (now_ms - self._now_ms) * self.bytes_per_second
            self._millibytes = min(self._millibytes + gained, self.bytes_per_second * BURST_MS)
            self._now_ms = now_ms
