"""Produce (0), versions 3 to 13: record batches to partitions; since version 13 by topic id."""

from __future__ import annotations

import uuid
from typing import ClassVar

from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import (
    INT16,
    INT32,
    INT64,
    NULLABLE_RECORDS,
    NULLABLE_STRING,
    STRING,
    UUID,
)
from millrace_protocol.schema import Message, Struct, array_of, message, wire


@message
class ProducePartition(Message):
    """The batches of a partition."""

    index: int = wire(INT32, "number of the partition")
    records: bytes | memoryview | None = wire(NULLABLE_RECORDS, "the batches")


@message
class ProduceTopic(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic", until=12, default="")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=13, default=NO_ID)
    partitions: tuple[ProducePartition, ...] = wire(
        array_of(ProducePartition), "its partitions", default=()
    )


@message
class ProduceRequest(KafkaRequest):
    """Appends batches. With `acks` 0 there is no response."""

    flexible_since: ClassVar[int | None] = 9

    transactional_id: str | None = wire(NULLABLE_STRING, "id of the transaction; null: none")
    acks: int = wire(INT16, "0, 1, or -1 for all replicas in sync")
    timeout_ms: int = wire(INT32, "how long to wait for them", unit="ms")
    topics: tuple[ProduceTopic, ...] = wire(array_of(ProduceTopic), "the topics")


@message
class BatchIndexAndErrorMessage(Message):
    """Why a record was refused (KIP-467)."""

    batch_index: int = wire(INT32, "index of the record in its batch")
    message: str | None = wire(NULLABLE_STRING, "the reason", default=None)


@message
class LeaderIdAndEpoch(Message):
    """A leader that is newer than the one that was asked (KIP-951)."""

    leader_id: int = wire(INT32, "broker that leads; -1: unknown", default=-1)
    leader_epoch: int = wire(INT32, "its epoch", default=-1)


@message
class NodeEndpoint(Message):
    """Where a new leader is (KIP-951)."""

    node_id: int = wire(INT32, "id of the broker")
    host: str = wire(STRING, "host to connect to")
    port: int = wire(INT32, "port to connect to")
    rack: str | None = wire(NULLABLE_STRING, "rack of the broker", default=None)


@message
class PartitionProduceResponse(Message):
    """The result of a partition."""

    index: int = wire(INT32, "number of the partition")
    error_code: int = wire(INT16, "error of the partition")
    base_offset: int = wire(INT64, "offset of the first record")
    log_append_time_ms: int = wire(INT64, "timestamp that the broker gave; -1: none", default=-1)
    log_start_offset: int = wire(INT64, "where the log begins", since=5, default=-1)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(
        array_of(BatchIndexAndErrorMessage), "records that were refused", since=8, default=()
    )
    error_message: str | None = wire(NULLABLE_STRING, "the reason", since=8, default=None)
    current_leader: LeaderIdAndEpoch | None = wire(
        Struct(LeaderIdAndEpoch), "the leader, if it is another", since=10, tag=0, default=None
    )


@message
class TopicProduceResponse(Message):
    """The results of a topic."""

    name: str = wire(STRING, "name of the topic", until=12, default="")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=13, default=NO_ID)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(
        array_of(PartitionProduceResponse), "its partitions", default=()
    )


@message
class ProduceResponse(Message):
    """The results."""

    flexible_since: ClassVar[int | None] = 9

    responses: tuple[TopicProduceResponse, ...] = wire(array_of(TopicProduceResponse), "the topics")
    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    node_endpoints: tuple[NodeEndpoint, ...] = wire(
        array_of(NodeEndpoint), "where new leaders are", since=10, tag=0, default=()
    )
