"""What the partitions of one broker append and flush, all of them together."""

from __future__ import annotations

from millrace_server.statistics import Registry, metrics


class LogStatistics:
    """Shared by the partitions, which increase the numbers themselves."""

    __slots__ = (
        "appended_bytes",
        "appended_records",
        "appends",
        "corrupt_ranges",
        "flush_durations",
        "repaired_ranges",
    )

    def __init__(self, registry: Registry) -> None:
        self.appends = 0
        self.appended_records = 0
        self.appended_bytes = 0
        self.corrupt_ranges = 0
        self.repaired_ranges = 0
        self.flush_durations = registry.histogram(metrics.FLUSH_DURATION)
        registry.gauge(metrics.APPENDS, lambda: self.appends)
        registry.gauge(metrics.APPENDED_RECORDS, lambda: self.appended_records)
        registry.gauge(metrics.APPENDED, lambda: self.appended_bytes)
        registry.gauge(metrics.CORRUPT_RANGES, lambda: self.corrupt_ranges)
        registry.gauge(metrics.REPAIRED_RANGES, lambda: self.repaired_ranges)
