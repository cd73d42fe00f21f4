"""Every metric of a broker: the one home of its name, unit, labels, meaning and name in Kafka.

`docs/reference/metrics.md` is made of this table.
"""

from __future__ import annotations

from millrace_server.statistics.metric import Kind, Metric, Unit

LATENCY_BOUNDS = tuple(
    step * 10**exponent // 10 for exponent in range(4, 12) for step in (10, 25, 50)
)
"""10 us to 500 s in nanoseconds, three bounds for each power of ten."""

READY = Metric(
    "millrace_ready",
    Kind.GAUGE,
    "1 while the broker is registered, in service and has opened its partitions; else 0",
    kafka="kafka.server:type=KafkaServer,name=BrokerState",
)
BUILD_INFO = Metric(
    "millrace_build_info",
    Kind.GAUGE,
    "1; the label has the version of the broker",
    labels=("version",),
    kafka="kafka.server:type=app-info",
)
REQUESTS = Metric(
    "millrace_requests_total",
    Kind.COUNTER,
    "requests that arrived whole; an api that the broker does not have is `unknown`",
    labels=("dialect", "api"),
    kafka="kafka.network:type=RequestMetrics,name=RequestsPerSec",
)
REQUEST_ERRORS = Metric(
    "millrace_request_errors_total",
    Kind.COUNTER,
    "error codes that were sent: one for a request that was refused as a whole, else one for each "
    "of its results (topic, partition, group or member) that is an error",
    labels=("dialect", "api", "error"),
    kafka="kafka.network:type=RequestMetrics,name=ErrorsPerSec",
)
REQUEST_DURATION = Metric(
    "millrace_request_duration_seconds",
    Kind.HISTOGRAM,
    "from a whole request to its response in the queue, waiting included; the first and then one "
    "in 16 of each api is timed, so the rate of requests is that of `millrace_requests_total`",
    Unit.SECONDS,
    ("dialect", "api"),
    LATENCY_BOUNDS,
    kafka="kafka.network:type=RequestMetrics,name=TotalTimeMs",
)
RECEIVED = Metric(
    "millrace_received_bytes_total",
    Kind.COUNTER,
    "bytes that peers sent",
    Unit.BYTES,
    kafka="kafka.server:type=socket-server-metrics incoming-byte-total",
)
SENT = Metric(
    "millrace_sent_bytes_total",
    Kind.COUNTER,
    "bytes sent to peers",
    Unit.BYTES,
    kafka="kafka.server:type=socket-server-metrics outgoing-byte-total",
)
CONNECTIONS = Metric(
    "millrace_connections",
    Kind.GAUGE,
    "connections now: `open`, or `pending` until their first frame is whole",
    labels=("state",),
    kafka="kafka.server:type=socket-server-metrics connection-count",
)
ACCEPTED = Metric(
    "millrace_connections_accepted_total",
    Kind.COUNTER,
    "connections that were opened",
    kafka="kafka.server:type=socket-server-metrics connection-creation-total",
)
REFUSED = Metric(
    "millrace_connections_refused_total",
    Kind.COUNTER,
    "connections beyond the limit, which the broker refused",
)
AUTHENTICATIONS = Metric(
    "millrace_authentications_total",
    Kind.COUNTER,
    "exchanges of SASL that ended, with `success` or `failure`",
    labels=("mechanism", "result"),
    kafka="kafka.server:type=socket-server-metrics successful-authentication-total",
)
DENIALS = Metric(
    "millrace_denials_total",
    Kind.COUNTER,
    "requests, or parts of them, that access control has denied, by the type of resource",
    labels=("resource_type",),
)
THROTTLES = Metric(
    "millrace_throttles_total",
    Kind.COUNTER,
    "requests and connections after which, or before which, a client had to wait for its quota",
    labels=("quota",),
    kafka="kafka.server:type=Request throttle-time",
)
REQUEST_MEMORY = Metric(
    "millrace_request_memory_bytes",
    Kind.GAUGE,
    "memory of requests and of responses that were not sent, of all connections",
    Unit.BYTES,
    kafka="kafka.network:type=SocketServer,name=MemoryPoolUsed",
)
REQUEST_MEMORY_LIMIT = Metric(
    "millrace_request_memory_limit_bytes", Kind.GAUGE, "the limit of that memory", Unit.BYTES
)
REQUEST_MEMORY_WAITING = Metric(
    "millrace_request_memory_waiting", Kind.GAUGE, "frames that wait for that memory"
)
PURGATORY = Metric(
    "millrace_purgatory_requests",
    Kind.GAUGE,
    "requests that wait: `produce` for acks, `fetch` for more to read",
    labels=("purgatory",),
    kafka="kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
)
LOG_READS = Metric(
    "millrace_log_reads_total",
    Kind.COUNTER,
    "reads of up to 4 MiB of a segment for a fetch, by what the bytes were: `cached`, in the page "
    "cache and checked; `unchecked`, in the page cache and checked by a worker thread first; "
    "`cold`, not in the page cache, so a worker thread read and checked them first",
    labels=("source",),
)
APPENDS = Metric(
    "millrace_appends_total",
    Kind.COUNTER,
    "batches that a leader appended to a log, those of the broker's own topics included",
)
APPENDED_RECORDS = Metric(
    "millrace_appended_records_total",
    Kind.COUNTER,
    "records of these batches",
    kafka="kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
)
APPENDED = Metric(
    "millrace_appended_bytes_total",
    Kind.COUNTER,
    "bytes of these batches",
    Unit.BYTES,
    kafka="kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
)
FLUSH_DURATION = Metric(
    "millrace_flush_duration_seconds",
    Kind.HISTOGRAM,
    "from the start of a flush of a log to its batches being durable; one flush serves all batches "
    "that wait for it",
    Unit.SECONDS,
    bounds=LATENCY_BOUNDS,
    kafka="kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
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
DISK_SIZE = Metric(
    "millrace_disk_size_bytes",
    Kind.GAUGE,
    "size of the file system with the data directory, measured when it is asked for",
    Unit.BYTES,
)
DISK_FREE = Metric(
    "millrace_disk_free_bytes",
    Kind.GAUGE,
    "room on that file system for the broker",
    Unit.BYTES,
)
LOG_SIZE = Metric(
    "millrace_log_size_bytes",
    Kind.GAUGE,
    "bytes of the segments of a topic's partitions on this broker",
    Unit.BYTES,
    ("topic",),
    kafka="kafka.log:type=Log,name=Size",
)
PARTITIONS = Metric(
    "millrace_partitions",
    Kind.GAUGE,
    "partitions of this broker: `online`, or `offline`",
    labels=("state",),
    kafka="kafka.server:type=ReplicaManager,name=PartitionCount",
)
LED_PARTITIONS = Metric(
    "millrace_led_partitions",
    Kind.GAUGE,
    "partitions that this broker leads, that of the metadata log included",
    kafka="kafka.server:type=ReplicaManager,name=LeaderCount",
)
UNDER_REPLICATED = Metric(
    "millrace_under_replicated_partitions",
    Kind.GAUGE,
    "partitions that this broker leads, and of which a replica is not in sync",
    kafka="kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
)
AT_MIN_ISR = Metric(
    "millrace_at_min_isr_partitions",
    Kind.GAUGE,
    "those of them of which exactly `min.insync.replicas` are in sync: no more may be lost",
    kafka="kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
)
BELOW_MIN_ISR = Metric(
    "millrace_below_min_isr_partitions",
    Kind.GAUGE,
    "those of them of which fewer are in sync: nothing is written with acks=all",
    kafka="kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
)
ISR_SHRINKS = Metric(
    "millrace_isr_shrinks_total",
    Kind.COUNTER,
    "changes of an ISR by which a leader of this broker took out replicas that lagged behind; one "
    "whose broker is gone is taken out by the active controller",
    kafka="kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
)
ISR_EXPANDS = Metric(
    "millrace_isr_expands_total",
    Kind.COUNTER,
    "changes of an ISR by which a leader of this broker took in replicas that had caught up",
    kafka="kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
)
GROUPS = Metric(
    "millrace_groups",
    Kind.GAUGE,
    "consumer groups that this broker coordinates, by state",
    labels=("state",),
    kafka="kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
)
ACTIVE_CONTROLLER = Metric(
    "millrace_active_controller",
    Kind.GAUGE,
    "1 on the active controller, which leads the metadata quorum; else 0",
    kafka="kafka.controller:type=KafkaController,name=ActiveControllerCount",
)
WITHOUT_LEADER = Metric(
    "millrace_partitions_without_leader",
    Kind.GAUGE,
    "partitions of the cluster that no broker leads, counted by the active controller; else 0",
    kafka="kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
)
BROKERS = Metric(
    "millrace_brokers",
    Kind.GAUGE,
    "brokers of the cluster, counted by the active controller: `active`, or `fenced`; else 0",
    labels=("state",),
    kafka="kafka.controller:type=KafkaController,name=FencedBrokerCount",
)
QUORUM_EPOCH = Metric(
    "millrace_quorum_leader_epoch",
    Kind.GAUGE,
    "epoch of the metadata quorum; each election begins one",
    kafka="kafka.server:type=raft-metrics current-epoch",
)
QUORUM_LAG = Metric(
    "millrace_quorum_lag_records",
    Kind.GAUGE,
    "records of the metadata log that a replica, named by its broker's id, has not got; known to "
    "the active controller",
    labels=("replica",),
)
METADATA_END = Metric(
    "millrace_metadata_end_offset",
    Kind.GAUGE,
    "offset of the next record in this broker's metadata log",
    kafka="kafka.server:type=raft-metrics log-end-offset",
)
METADATA_COMMITTED = Metric(
    "millrace_metadata_committed_offset",
    Kind.GAUGE,
    "offset before which this broker knows the metadata log to be committed",
    kafka="kafka.server:type=raft-metrics high-watermark",
)
METADATA_APPLIED = Metric(
    "millrace_metadata_applied_offset",
    Kind.GAUGE,
    "offset before which this broker has applied the metadata log",
    kafka="kafka.server:type=broker-metadata-metrics last-applied-record-offset",
)

METRICS = (
    READY,
    BUILD_INFO,
    REQUESTS,
    REQUEST_ERRORS,
    REQUEST_DURATION,
    RECEIVED,
    SENT,
    CONNECTIONS,
    ACCEPTED,
    REFUSED,
    AUTHENTICATIONS,
    DENIALS,
    THROTTLES,
    REQUEST_MEMORY,
    REQUEST_MEMORY_LIMIT,
    REQUEST_MEMORY_WAITING,
    PURGATORY,
    LOG_READS,
    APPENDS,
    APPENDED_RECORDS,
    APPENDED,
    FLUSH_DURATION,
    CORRUPT_RANGES,
    REPAIRED_RANGES,
    DISK_SIZE,
    DISK_FREE,
    LOG_SIZE,
    PARTITIONS,
    LED_PARTITIONS,
    UNDER_REPLICATED,
    AT_MIN_ISR,
    BELOW_MIN_ISR,
    ISR_SHRINKS,
    ISR_EXPANDS,
    GROUPS,
    ACTIVE_CONTROLLER,
    WITHOUT_LEADER,
    BROKERS,
    QUORUM_EPOCH,
    QUORUM_LAG,
    METADATA_END,
    METADATA_COMMITTED,
    METADATA_APPLIED,
)
"""In the order in which they are read."""
