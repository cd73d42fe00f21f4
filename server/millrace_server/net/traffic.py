"""What the connections of one server receive, send and read from files, all of them together."""

from __future__ import annotations

from millrace_server.statistics import Registry, metrics


class Traffic:
    """Shared by the connections, which increase the numbers themselves."""

    __slots__ = ("cached_reads", "cold_reads", "received_bytes", "sent_bytes", "unchecked_reads")

    def __init__(self, registry: Registry) -> None:
        self.received_bytes = self.sent_bytes = 0
        self.cached_reads = self.unchecked_reads = self.cold_reads = 0
        registry.gauge(metrics.RECEIVED, lambda: self.received_bytes)
        registry.gauge(metrics.SENT, lambda: self.sent_bytes)
        registry.gauge(metrics.LOG_READS, lambda: self.cached_reads, "cached")
        registry.gauge(metrics.LOG_READS, lambda: self.unchecked_reads, "unchecked")
        registry.gauge(metrics.LOG_READS, lambda: self.cold_reads, "cold")
