"""The metrics of a consumer at a moment, read in any thread.

What is read here is an integer that the consumer's event loop alone changes, or an object that is
never changed, or a list that is copied in one step. So a reader needs no lock and no event loop.
"""

from __future__ import annotations

from millrace._consumer.counters import ConsumerCounters
from millrace._consumer.fetch_buffer import FetchBuffer
from millrace._consumer.positions import Positions
from millrace.metrics import ConsumerMetrics
from millrace.records import TopicPartition


def consumer_metrics(
    client_id: str,
    counters: ConsumerCounters,
    positions: Positions,
    fetch_buffer: FetchBuffer,
    *,
    is_running: bool,
) -> ConsumerMetrics:
    """The counters, and the gauges now."""
    lag: dict[TopicPartition, int] = {}
    states = positions.states() if is_running else []
    for state in states:
        position, end_offset = fetch_buffer.position(state), state.high_watermark
        if position is not None and end_offset is not None:
            lag[state.where] = max(0, end_offset - position)
    return ConsumerMetrics(
        client_id=client_id,
        fetched_records=counters.fetched_records,
        fetched_bytes=counters.fetched_bytes,
        fetch_requests=counters.fetch_requests,
        fetch_responses=counters.fetch_responses,
        failed_fetch_requests=counters.failed_fetch_requests,
        partition_errors=counters.partition_errors,
        fetch_latency_ms=counters.fetch_latency_ms,
        commits=counters.commits,
        failed_commits=counters.failed_commits,
        rebalances=counters.rebalances,
        assigned_partitions=len(states),
        buffered_bytes=positions.buffered_bytes,
        in_flight_requests=positions.in_flight_requests,
        lag=lag,
    )
