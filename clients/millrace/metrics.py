"""Metrics of a client: plain numbers since its start, as `metrics()` of a client returns them.

Owns the values, and the one home of their meanings and of their names in Kafka's Java client, from
which `millrace.prometheus` and `docs/reference/client-metrics.md` are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from millrace.records import TopicPartition

Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a field of metrics is: a counter never falls, a gauge goes up and down.

    `kafka` is what Kafka's Java client calls it, or what is next to it; empty if it has none.
    """

    kind: Kind
    help: str
    kafka: str = ""


def _counter(meaning: str, kafka: str = "") -> Any:
    return field(metadata={"meaning": Meaning("counter", meaning, kafka)})


def _gauge(meaning: str, kafka: str = "") -> Any:
    return field(metadata={"meaning": Meaning("gauge", meaning, kafka)})


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """A producer's counters since its start, and its gauges. Times are in milliseconds.

    Of the requests that have ended, each is in `produce_responses` or in
    `failed_produce_requests`; with `acks=0`, which has no response, in neither of them.
    """

    client_id: str
    acked_records: int = _counter(
        "records that the broker has acked; with `acks=0` those that were sent", "record-send-total"
    )
    acked_bytes: int = _counter(
        "bytes of their batches as they were sent, compressed", "byte-total"
    )
    acked_batches: int = _counter("their batches; a batch is of one partition")
    failed_records: int = _counter(
        "records that `send` took and that were given up", "record-error-total"
    )
    retried_batches: int = _counter(
        "batches that were put back after an attempt, to be sent again", "record-retry-total"
    )
    produce_requests: int = _counter("produce requests, retries included", "request-total")
    produce_responses: int = _counter("produce requests that the broker answered", "response-total")
    failed_produce_requests: int = _counter(
        "produce requests without an answer: no connection, a lost one, or a timeout"
    )
    produce_latency_ms: int = _counter(
        "time from produce requests to their answers, added up; by `produce_responses` it is the "
        "average",
        "request-latency-avg",
    )
    buffered_records: int = _gauge("records that are not settled yet")
    buffered_bytes: int = _gauge(
        "bytes that they take of `buffer_bytes`", "buffer-total-bytes - buffer-available-bytes"
    )
    in_flight_requests: int = _gauge("produce requests without an answer yet", "requests-in-flight")


@dataclass(frozen=True, slots=True)
class ConsumerMetrics:
    """A consumer's counters since its start, and its gauges. Times are in milliseconds.

    `lag` has each partition that is read and that a broker has answered for. It is the high
    watermark of the last fetch, less the offset of the next record: 0 for a reader at the end. A
    consumer that is closed or has failed reads no partition.
    """

    client_id: str
    fetched_records: int = _counter(
        "records read ahead, counted by their offsets: the gaps of a compacted topic count too",
        "records-consumed-total",
    )
    fetched_bytes: int = _counter("bytes of their batches, compressed", "bytes-consumed-total")
    fetch_requests: int = _counter("fetch requests", "fetch-total")
    fetch_responses: int = _counter("fetch requests that the broker answered")
    failed_fetch_requests: int = _counter(
        "fetch requests without an answer: no connection, a lost one, or a timeout"
    )
    partition_errors: int = _counter("errors of partitions in the answers to fetches")
    fetch_latency_ms: int = _counter(
        "time from fetch requests to their answers, added up; it includes the broker's wait for "
        "records, up to `fetch_max_wait_ms`; by `fetch_responses` it is the average",
        "fetch-latency-avg",
    )
    commits: int = _counter("commits of offsets, of any number of partitions", "commit-total")
    failed_commits: int = _counter("commits of which at least one partition failed")
    rebalances: int = _counter("assignments that the group has given", "rebalance-total")
    assigned_partitions: int = _gauge("partitions that are read", "assigned-partitions")
    buffered_bytes: int = _gauge("bytes that were read ahead, and are not handed out yet")
    in_flight_requests: int = _gauge("fetch requests without an answer yet")
    lag: Mapping[TopicPartition, int] = _gauge(
        "offsets that the consumer is behind the high watermark of its last fetch", "records-lag"
    )


def meanings(
    metrics: type[ProducerMetrics] | type[ConsumerMetrics],
) -> Iterator[tuple[str, Meaning]]:
    """The fields that are metrics, in their order, with their meanings."""
    for each in fields(metrics):
        if "meaning" in each.metadata:
            yield each.name, each.metadata["meaning"]
