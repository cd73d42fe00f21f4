"""The counters of a producer: what happened since its start, counted by batch and by request.

Plain integers, which only the producer's event loop changes. A reader in another thread sees each
as it is at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace._producer.batch import Batch


@dataclass(slots=True)
class ProducerCounters:
    """See `millrace.metrics.ProducerMetrics` for the meanings."""

    acked_records: int = 0
    acked_bytes: int = 0
    acked_batches: int = 0
    failed_records: int = 0
    retried_batches: int = 0
    produce_requests: int = 0
    produce_responses: int = 0
    failed_produce_requests: int = 0
    produce_latency_ms: int = 0

    def on_settled(self, batch: Batch) -> None:
        """A batch was settled; one that has moved is counted where its records are."""
        if batch.error is not None:
            self.failed_records += batch.count
        elif batch.moved is None:
            self.acked_records += batch.count
            self.acked_bytes += batch.encoded_bytes
            self.acked_batches += 1

    def on_response(self, latency_ms: int) -> None:
        """A broker answered a produce request."""
        self.produce_responses += 1
        self.produce_latency_ms += latency_ms
