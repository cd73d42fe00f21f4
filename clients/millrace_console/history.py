"""Rates, and their course over the last minutes.

Owns both. Counters come from successive reads of the cluster; what they count is the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

SAMPLES_MAX = 450
"""Fifteen minutes of a sample every two seconds."""
SERIES_MAX = 2_000
"""Series that are kept; more are left out. Each takes about 15 KB."""


class Rates:
    """Makes rates per second from counters."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._before_ms = 0

    def update(self, now_ms: int, counters: Mapping[str, float]) -> dict[str, float | None]:
        """The rate of each counter since the last call.

        None for one that was not there, and for one that fell: a broker was started again, or a
        log was cut.
        """
        seconds = (now_ms - self._before_ms) / 1000
        rates: dict[str, float | None] = {}
        for name, value in counters.items():
            before = self._before.get(name)
            is_known = before is not None and before <= value and seconds > 0
            rates[name] = (value - before) / seconds if is_known and before is not None else None
        self._before, self._before_ms = dict(counters), now_ms
        return rates


class History:
    """The last values of series: each has as many as there are times, None where unknown."""

    def __init__(self, samples_max: int = SAMPLES_MAX, series_max: int = SERIES_MAX) -> None:
        self._samples_max = samples_max
        self._series_max = series_max
        self._times_ms: deque[int] = deque(maxlen=samples_max)
        self._series: dict[str, deque[float | None]] = {}

    def add(self, now_ms: int, values: Mapping[str, float | None]) -> None:
        """The values of one time. Forgets a series that has no value left."""
        for name in values:
            if name not in self._series and len(self._series) < self._series_max:
                padding = [None] * len(self._times_ms)
                self._series[name] = deque(padding, maxlen=self._samples_max)
        self._times_ms.append(now_ms)
        for name in list(self._series):
            self._series[name].append(values.get(name))
            if all(value is None for value in self._series[name]):
                del self._series[name]

    def course(self, name: str) -> dict[str, list[float | None] | list[int]]:
        """`times_ms` and `values` of a series, the oldest first; empty for an unknown one."""
        values = self._series.get(name)
        if values is None:
            return {"times_ms": [], "values": []}
        return {"times_ms": list(self._times_ms), "values": list(values)}
