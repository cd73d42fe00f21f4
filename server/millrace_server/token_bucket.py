"""A rate that is kept over time, and paid for afterwards.

Bounds what a client, or a follower that catches up, may take of a broker. What is counted may be
larger than all that the bucket holds, such as one long response: the next one waits the longer.
"""

from __future__ import annotations

import math
from typing import Final

BURST_MS: Final = 1_000


class TokenBucket:
    """Holds what `burst_ms` give, and goes below zero by what is counted last.

    >>> bucket = TokenBucket(1_000, now_ms=0)
    >>> bucket.take(1_500, now_ms=0)
    >>> bucket.ready_ms(now_ms=0)
    501
    """

    __slots__ = ("_burst_ms", "_now_ms", "_tokens", "rate")

    def __init__(self, rate: float, *, now_ms: int, burst_ms: int = BURST_MS) -> None:
        """`rate` is per second. Raises `ValueError` unless it is positive."""
        if not rate > 0:
            raise ValueError(f"a rate of {rate} a second lets nothing through")
        self.rate = rate
        self._burst_ms = burst_ms
        self._now_ms = now_ms
        self._tokens = rate * burst_ms / 1000

    def take(self, count: float, *, now_ms: int) -> None:
        """Counts what was done."""
        self._fill(now_ms)
        self._tokens -= count

    def ready_ms(self, *, now_ms: int) -> int:
        """When more may be done: `now_ms` if it may be done now."""
        self._fill(now_ms)
        if self._tokens > 0:
            return now_ms
        return now_ms + 1 + math.floor(-self._tokens * 1000 / self.rate)

    def _fill(self, now_ms: int) -> None:
        if now_ms > self._now_ms:
            gained = (now_ms - self._now_ms) * self.rate / 1000
            self._tokens = min(self._tokens + gained, self.rate * self._burst_ms / 1000)
            self._now_ms = now_ms
