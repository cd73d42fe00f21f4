"""Latencies of many records in a fixed amount of memory.

A bucket is 1 % wide, from 1 µs to about 1,000 s, so that a percentile is at most 1 % from the one
of all values. `millrace_protocol.histogram` estimates it.
"""

from __future__ import annotations

from bisect import bisect_left

from millrace_protocol.histogram import quantile

BOUNDS_MS = tuple(0.001 * 1.01**step for step in range(2_084))


class LatencyHistogram:
    """Counts latencies, in nanoseconds; answers in ms.

    >>> latency = LatencyHistogram()
    >>> latency.add(2_000_000, count=99)
    >>> latency.add(80_000_000)
    >>> round(latency.quantile(0.5)), round(latency.quantile(0.999)), latency.max_ms
    (2, 80, 80.0)
    """

    def __init__(self) -> None:
        self.count = 0
        self.max_ms = 0.0
        self._sum_ms = 0.0
        self._buckets = [0] * (len(BOUNDS_MS) + 1)

    def add(self, ns: int, count: int = 1) -> None:
        """Counts a latency, or `count` times the same."""
        ms = ns / 1e6
        self.count += count
        self._sum_ms += ms * count
        self.max_ms = max(self.max_ms, ms)
        self._buckets[bisect_left(BOUNDS_MS, ms)] += count

    @property
    def mean_ms(self) -> float | None:
        """The mean; None without any latency."""
        return self._sum_ms / self.count if self.count else None

    def quantile(self, fraction: float) -> float | None:
        """What a `fraction` of the latencies do not exceed, in ms; None without any."""
        found = quantile(BOUNDS_MS, self._buckets, fraction)
        return None if found is None else min(found, self.max_ms)
