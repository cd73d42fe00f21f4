"""The times and bounds of replication."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """Times in milliseconds. Kafka's defaults, but for two of them."""

    replica_lag_ms_max: int = 10_000
    """A follower leaves the ISR when it has not been caught up for so long. Kafka's
    `replica.lag.time.max.ms` is 30 s: so long may `acks=all` wait for a follower that hangs."""
    fetch_wait_ms: int = 500
    """How long a leader holds back a fetch that has nothing to tell."""
    high_watermark_wait_ms: int = 50
    """How long a higher high watermark waits for records to travel with. At once would double the
    number of fetches (KAFKA-9731); never would delay consumers that read from followers."""
    request_wait_ms: int = 5
    """How long a fetch that has no partition to name waits for those whose records are being made
    durable."""
    backoff_ms: int = 100
    """When a follower asks for a partition again after an error. Kafka's is 1 s: so long would a
    record wait that is sent when a topic is new, or its leader, because a leader that learns of a
    change after its follower refuses the first fetch."""
    proposal_retry_ms: int = 500
    """When a leader proposes an ISR again that was refused, or whose outcome is not known."""
    fetch_bytes_max: int = 10 << 20
    """Bytes of records in one response, but for the first batch of it."""
    named_partitions_max: int = 2_000
    """Partitions that one request names, or one response answers."""
    session_partitions_max: int = 200_000
    """Partitions that a leader remembers of one connection."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for times in which a healthy follower would leave the ISR."""
        if self.fetch_wait_ms + self.backoff_ms >= self.replica_lag_ms_max:
            raise ValueError(
                f"replica_lag_ms_max is {self.replica_lag_ms_max}; it must be above fetch_wait_ms "
                f"and backoff_ms together, {self.fetch_wait_ms + self.backoff_ms}"
            )
