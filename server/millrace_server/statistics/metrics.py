"""Every metric of a broker: the one home of its name, unit, labels and meaning.

`docs/statistics.md` is made of this table: `python -m tests.specification update`.
"""

from __future__ import annotations

from millrace_server.statistics.metric import Kind, Metric, Unit

LATENCY_BOUNDS = tuple(
    step * 10**exponent // 10 for exponent in range(4, 12) for step in (10, 25, 50)
)
"""10 us to 500 s in nanoseconds, three bounds for each power of ten."""

REQUESTS = Metric(
    "millrace_requests_total",
    Kind.COUNTER,
    "requests that arrived whole; an api that the broker does not have is `unknown`",
    labels=("dialect", "api"),
)
REQUEST_ERRORS = Metric(
    "millrace_request_errors_total",
    Kind.COUNTER,
    "error codes that were sent: one for a request that was refused as a whole, else one for each "
    "of its results (topic, partition, group or member) that is an error",
    labels=("dialect", "api", "error"),
)
REQUEST_DURATION = Metric(
    "millrace_request_duration_seconds",
    Kind.HISTOGRAM,
    "from a whole request to its response in the queue, waiting included; the first and then one "
    "in 16 of each api is timed, so the rate of requests is that of `millrace_requests_total`",
    Unit.SECONDS,
    ("dialect", "api"),
    LATENCY_BOUNDS,
)
RECEIVED = Metric(
    "millrace_received_bytes_total", Kind.COUNTER, "bytes that peers sent", Unit.BYTES
)
SENT = Metric("millrace_sent_bytes_total", Kind.COUNTER, "bytes sent to peers", Unit.BYTES)
CONNECTIONS = Metric(
    "millrace_connections",
    Kind.GAUGE,
    "connections now: `open`, or `pending` until their first frame is whole",
    labels=("state",),
)
ACCEPTED = Metric(
    "millrace_connections_accepted_total", Kind.COUNTER, "connections that were opened"
)
REFUSED = Metric(
    "millrace_connections_refused_total",
    Kind.COUNTER,
    "connections beyond the limit, which the broker refused",
)
REQUEST_MEMORY = Metric(
    "millrace_request_memory_bytes",
    Kind.GAUGE,
    "memory of requests and of responses that were not sent, of all connections",
    Unit.BYTES,
)
REQUEST_MEMORY_LIMIT = Metric(
    "millrace_request_memory_limit_bytes", Kind.GAUGE, "the limit of that memory", Unit.BYTES
)
REQUEST_MEMORY_WAITING = Metric(
    "millrace_request_memory_waiting", Kind.GAUGE, "frames that wait for that memory"
)
LOG_READS = Metric(
    "millrace_log_reads_total",
    Kind.COUNTER,
    "reads of up to 4 MiB of a segment for a fetch, by what the bytes were: `cached`, in the page "
    "cache and checked; `unchecked`, in the page cache and checked by a worker thread first; "
    "`cold`, not in the page cache, so a worker thread read and checked them first",
    labels=("source",),
)
CORRUPT_RANGES = Metric(
    "millrace_corrupt_ranges_total",
    Kind.COUNTER,
    "ranges of the disk that were found not to be what was written",
)
REPAIRED_RANGES = Metric(
    "millrace_repaired_ranges_total",
    Kind.COUNTER,
    "corrupt ranges that were written anew with the records of another replica",
)
APPENDS = Metric(
    "millrace_appends_total",
    Kind.COUNTER,
    "batches that a leader appended to a log, those of the broker's own topics included",
)
APPENDED = Metric(
    "millrace_appended_bytes_total", Kind.COUNTER, "bytes of these batches", Unit.BYTES
)
FLUSH_DURATION = Metric(
    "millrace_flush_duration_seconds",
    Kind.HISTOGRAM,
    "from the start of a flush of a log to its batches being durable; one flush serves all batches "
    "that wait for it",
    Unit.SECONDS,
    bounds=LATENCY_BOUNDS,
)
LOG_SIZE = Metric(
    "millrace_log_size_bytes",
    Kind.GAUGE,
    "bytes of the segments of a topic's partitions on this broker",
    Unit.BYTES,
    ("topic",),
)
PARTITIONS = Metric(
    "millrace_partitions",
    Kind.GAUGE,
    "partitions of this broker: `online`, or `offline`",
    labels=("state",),
)
PURGATORY = Metric(
    "millrace_purgatory_requests",
    Kind.GAUGE,
    "requests that wait: `produce` for acks, `fetch` for more to read",
    labels=("purgatory",),
)
GROUPS = Metric(
    "millrace_groups",
    Kind.GAUGE,
    "consumer groups that this broker coordinates, by state",
    labels=("state",),
)

METRICS = (
    REQUESTS,
    REQUEST_ERRORS,
    REQUEST_DURATION,
    RECEIVED,
    SENT,
    CONNECTIONS,
    ACCEPTED,
    REFUSED,
    REQUEST_MEMORY,
    REQUEST_MEMORY_LIMIT,
    REQUEST_MEMORY_WAITING,
    PURGATORY,
    LOG_READS,
    APPENDS,
    APPENDED,
    FLUSH_DURATION,
    CORRUPT_RANGES,
    REPAIRED_RANGES,
    LOG_SIZE,
    PARTITIONS,
    GROUPS,
)
"""In the order in which they are read."""
