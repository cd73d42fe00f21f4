"""What the partitions of one broker append and flush, all of them together."""

from __future__ import annotations

from millrace_server.statistics import Registry, metrics


class LogStatistics:
    """Shared by the partitions, which increase the counters themselves."""

    __slots__ = ("appended_bytes", "appends", "flush_durations")

    def __init__(self, registry: Registry) -> None:
        self.appends = registry.counter(metrics.APPENDS)
        self.appended_bytes = registry.counter(metrics.APPENDED)
        self.flush_durations = registry.histogram(metrics.FLUSH_DURATION)
