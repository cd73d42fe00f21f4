"""DescribeTopicPartitions (75): topics in pages, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

import uuid
from typing import ClassVar

from millrace_protocol.kafka.metadata import NO_ID, UNKNOWN_OPERATIONS
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BOOLEAN, INT16, INT32, NULLABLE_STRING, STRING, UUID
from millrace_protocol.schema import Message, Struct, array_of, message, wire


@message
class TopicRequest(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")


@message
class Cursor(Message):
    """The first partition of the next page."""

    topic_name: str = wire(STRING, "name of the topic")
    partition_index: int = wire(INT32, "number of the partition")


@message
class DescribeTopicPartitionsRequest(KafkaRequest):
    """Asks for a page of partitions."""

    flexible_since: ClassVar[int | None] = 0

    topics: tuple[TopicRequest, ...] = wire(array_of(TopicRequest), "the topics; empty: all")
    response_partition_limit: int = wire(INT32, "partitions of a page at most", default=2_000)
    cursor: Cursor | None = wire(
        Struct(Cursor), "where the page begins; null: the first", nullable_since=0, default=None
    )


@message
class DescribeTopicPartitionsResponsePartition(Message):
    """A partition and its replicas."""

    error_code: int = wire(INT16, "error of the partition")
    partition_index: int = wire(INT32, "number of the partition")
    leader_id: int = wire(INT32, "broker that leads; -1: none")
    leader_epoch: int = wire(INT32, "epoch of the leader; -1: unknown", default=-1)
    replica_nodes: tuple[int, ...] = wire(array_of(INT32), "brokers with a replica", default=())
    isr_nodes: tuple[int, ...] = wire(array_of(INT32), "those in sync", default=())
    eligible_leader_replicas: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True), "those that may lead when none is in sync", default=None
    )
    last_known_elr: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True), "those that could before", default=None
    )
    offline_replicas: tuple[int, ...] = wire(array_of(INT32), "those not in service", default=())


@message
class DescribeTopicPartitionsResponseTopic(Message):
    """A topic, as far as the page has it."""

    error_code: int = wire(INT16, "error of the topic")
    name: str | None = wire(NULLABLE_STRING, "name of the topic")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", default=NO_ID)
    is_internal: bool = wire(BOOLEAN, "whether it is the broker's own", default=False)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire(
        array_of(DescribeTopicPartitionsResponsePartition), "its partitions", default=()
    )
    topic_authorized_operations: int = wire(
        INT32, "what the client may do, as bits", default=UNKNOWN_OPERATIONS
    )


@message
class DescribeTopicPartitionsResponse(Message):
    """A page."""

    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire(
        array_of(DescribeTopicPartitionsResponseTopic), "the topics", default=()
    )
    next_cursor: Cursor | None = wire(
        Struct(Cursor), "where the next page begins; null: none", nullable_since=0, default=None
    )
