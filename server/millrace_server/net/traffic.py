"""What the connections of one server receive, send and read from files, all of them together."""

from __future__ import annotations

from millrace_server.statistics import Registry, metrics


class Traffic:
    """Shared by the connections, which increase the counters themselves."""

    __slots__ = ("cached_reads", "cold_reads", "received", "sent", "unchecked_reads")

    def __init__(self, registry: Registry) -> None:
        self.received = registry.counter(metrics.RECEIVED)
        self.sent = registry.counter(metrics.SENT)
        self.cached_reads = registry.counter(metrics.LOG_READS, "cached")
        self.unchecked_reads = registry.counter(metrics.LOG_READS, "unchecked")
        self.cold_reads = registry.counter(metrics.LOG_READS, "cold")
