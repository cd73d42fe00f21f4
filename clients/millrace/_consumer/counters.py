"""The counters of a consumer: what happened since its start, counted by response and by request.

Plain integers, which only the consumer's event loop changes. A reader in another thread sees each
as it is at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ConsumerCounters:
    """See `millrace.metrics.ConsumerMetrics` for the meanings."""

    fetched_records: int = 0
    fetched_bytes: int = 0
    fetch_requests: int = 0
    fetch_responses: int = 0
    failed_fetch_requests: int = 0
    partition_errors: int = 0
    fetch_latency_ms: int = 0
    commits: int = 0
    failed_commits: int = 0
    rebalances: int = 0

    def on_response(self, latency_ms: int) -> None:
        """A broker answered a fetch."""
        self.fetch_responses += 1
        self.fetch_latency_ms += latency_ms

    def on_batches(self, records: int, size_bytes: int) -> None:
        """Whole batches of one partition were read ahead."""
        self.fetched_records += records
        self.fetched_bytes += size_bytes
