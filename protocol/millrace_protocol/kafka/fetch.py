"""Fetch (1), versions 4 to 18: record batches of partitions, in sessions if the client likes
(KIP-227). From version 13 on topics have ids."""

from __future__ import annotations

import uuid
from typing import ClassVar

from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.kafka.produce import LeaderIdAndEpoch, NodeEndpoint
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import (
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_RECORDS,
    NULLABLE_STRING,
    STRING,
    UUID,
)
from millrace_protocol.schema import Message, Struct, array_of, message, wire

NO_SESSION = 0
FINAL_EPOCH = -1
"""The session epoch of a fetch that wants no session, or ends the one that it has."""
OFFSET_MAX = (1 << 63) - 1


@message
class FetchPartition(Message):
    """A position in a partition."""

    partition: int = wire(INT32, "number of the partition")
    current_leader_epoch: int = wire(
        INT32, "epoch that the client knows; -1: none", since=9, default=-1
    )
    fetch_offset: int = wire(INT64, "offset of the first record wanted", default=0)
    last_fetched_epoch: int = wire(
        INT32, "epoch of the last record of a follower; -1: none", since=12, default=-1
    )
    log_start_offset: int = wire(INT64, "where the log of a follower begins", since=5, default=-1)
    partition_max_bytes: int = wire(INT32, "most bytes of this partition", default=0)
    replica_directory_id: uuid.UUID = wire(
        UUID, "directory of a follower", since=17, tag=0, default=NO_ID
    )
    high_watermark: int = wire(
        INT64, "the high watermark that a follower knows", since=18, tag=1, default=OFFSET_MAX
    )


@message
class FetchTopic(Message):
    """A topic."""

    topic: str = wire(STRING, "name of the topic", until=12, default="")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=13, default=NO_ID)
    partitions: tuple[FetchPartition, ...] = wire(
        array_of(FetchPartition), "its partitions", default=()
    )


@message
class ForgottenTopic(Message):
    """Partitions that leave the session."""

    topic: str = wire(STRING, "name of the topic", since=7, until=12, default="")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=13, default=NO_ID)
    partitions: tuple[int, ...] = wire(array_of(INT32), "their numbers", since=7, default=())


@message
class ReplicaState(Message):
    """Which follower fetches."""

    replica_id: int = wire(INT32, "id of the follower; -1: a consumer", default=-1)
    replica_epoch: int = wire(INT64, "its broker epoch", default=-1)


@message
class FetchRequest(KafkaRequest):
    """Reads partitions; waits for data up to a limit."""

    flexible_since: ClassVar[int | None] = 12

    replica_id: int = wire(INT32, "-1 for a consumer", until=14, default=-1)
    max_wait_ms: int = wire(INT32, "longest wait for min_bytes", unit="ms", default=0)
    min_bytes: int = wire(INT32, "respond as soon as this much is there", default=0)
    max_bytes: int = wire(INT32, "most bytes of the response", default=0x7FFFFFFF)
    isolation_level: int = wire(INT8, "1: only what is committed", default=0)
    session_id: int = wire(INT32, "id of the session; 0: none", since=7, default=NO_SESSION)
    session_epoch: int = wire(INT32, "epoch of the session", since=7, default=FINAL_EPOCH)
    topics: tuple[FetchTopic, ...] = wire(array_of(FetchTopic), "the topics", default=())
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(
        array_of(ForgottenTopic), "what leaves the session", since=7, default=()
    )
    rack_id: str = wire(STRING, "rack of the consumer", since=11, default="")
    cluster_id: str | None = wire(
        NULLABLE_STRING, "id of the cluster", since=12, tag=0, default=None
    )
    replica_state: ReplicaState | None = wire(
        Struct(ReplicaState), "which follower fetches", since=15, tag=1, default=None
    )


@message
class EpochEndOffset(Message):
    """Where an epoch ends in the leader's log."""

    epoch: int = wire(INT32, "the epoch", default=-1)
    end_offset: int = wire(INT64, "the offset behind its last record", default=-1)


@message
class SnapshotId(Message):
    """A snapshot of the metadata."""

    end_offset: int = wire(INT64, "the offset behind it", default=-1)
    epoch: int = wire(INT32, "epoch of its last record", default=-1)


@message
class AbortedTransaction(Message):
    """A transaction whose records are to be skipped."""

    producer_id: int = wire(INT64, "id of the producer")
    first_offset: int = wire(INT64, "its first record")


@message
class PartitionData(Message):
    """The records of a partition."""

    partition_index: int = wire(INT32, "number of the partition")
    error_code: int = wire(INT16, "error of the partition")
    high_watermark: int = wire(INT64, "the high watermark")
    last_stable_offset: int = wire(INT64, "where the first open transaction begins", default=-1)
    log_start_offset: int = wire(INT64, "where the log begins", since=5, default=-1)
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        array_of(AbortedTransaction, nullable=True), "transactions to skip", default=None
    )
    preferred_read_replica: int = wire(
        INT32, "broker to read from instead; -1: none", since=11, default=-1
    )
    records: bytes | memoryview | None = wire(NULLABLE_RECORDS, "whole batches", default=None)
    diverging_epoch: EpochEndOffset | None = wire(
        Struct(EpochEndOffset), "where a follower truncates", since=12, tag=0, default=None
    )
    current_leader: LeaderIdAndEpoch | None = wire(
        Struct(LeaderIdAndEpoch), "the leader, if it is another", since=12, tag=1, default=None
    )
    snapshot_id: SnapshotId | None = wire(
        Struct(SnapshotId), "what a follower fetches first", since=12, tag=2, default=None
    )


@message
class FetchableTopicResponse(Message):
    """A topic."""

    topic: str = wire(STRING, "name of the topic", until=12, default="")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=13, default=NO_ID)
    partitions: tuple[PartitionData, ...] = wire(
        array_of(PartitionData), "its partitions", default=()
    )


@message
class FetchResponse(Message):
    """The records."""

    flexible_since: ClassVar[int | None] = 12

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    error_code: int = wire(INT16, "error of the request", since=7, default=0)
    session_id: int = wire(INT32, "id of the session; 0: none", since=7, default=NO_SESSION)
    responses: tuple[FetchableTopicResponse, ...] = wire(
        array_of(FetchableTopicResponse), "the topics", default=()
    )
    node_endpoints: tuple[NodeEndpoint, ...] = wire(
        array_of(NodeEndpoint), "where new leaders are", since=16, tag=0, default=()
    )
