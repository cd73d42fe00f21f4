"""DescribeQuorum (55): the replicas of the metadata log (KIP-836, KIP-853)."""

from __future__ import annotations

import uuid
from typing import ClassVar

from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import (
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID,
)
from millrace_protocol.schema import Message, array_of, message, wire


@message
class RequestedPartition(Message):
    """A partition; the metadata log has one, 0."""

    partition_index: int = wire(INT32, "number of the partition")


@message
class RequestedTopic(Message):
    """A topic; that of the metadata log is `__cluster_metadata`."""

    topic_name: str = wire(STRING, "name of the topic")
    partitions: tuple[RequestedPartition, ...] = wire(
        array_of(RequestedPartition), "its partitions"
    )


@message
class DescribeQuorumRequest(KafkaRequest):
    """Asks for the quorum of the metadata log."""

    flexible_since: ClassVar[int | None] = 0

    topics: tuple[RequestedTopic, ...] = wire(array_of(RequestedTopic), "the topics")


@message
class ReplicaState(Message):
    """A replica, and how far it is."""

    replica_id: int = wire(INT32, "id of its broker")
    replica_directory_id: uuid.UUID = wire(UUID, "id of its directory", since=2, default=NO_ID)
    log_end_offset: int = wire(INT64, "the offset behind its last record; -1: unknown", default=-1)
    last_fetch_timestamp: int = wire(
        INT64, "when it fetched last; -1: unknown", unit="ms", since=1, default=-1
    )
    last_caught_up_timestamp: int = wire(
        INT64, "when it was last as far as the leader; -1: unknown", unit="ms", since=1, default=-1
    )


@message
class PartitionData(Message):
    """The leader and the replicas of a partition."""

    partition_index: int = wire(INT32, "number of the partition")
    error_code: int = wire(INT16, "error of the partition")
    error_message: str | None = wire(NULLABLE_STRING, "the reason", since=2, default=None)
    leader_id: int = wire(INT32, "broker that leads; -1: none", default=-1)
    leader_epoch: int = wire(INT32, "epoch of the leader", default=-1)
    high_watermark: int = wire(INT64, "the high watermark", default=-1)
    current_voters: tuple[ReplicaState, ...] = wire(
        array_of(ReplicaState), "the replicas that vote", default=()
    )
    observers: tuple[ReplicaState, ...] = wire(
        array_of(ReplicaState), "those that do not", default=()
    )


@message
class TopicData(Message):
    """A topic."""

    topic_name: str = wire(STRING, "name of the topic")
    partitions: tuple[PartitionData, ...] = wire(array_of(PartitionData), "its partitions")


@message
class Listener(Message):
    """Where a voter listens."""

    name: str = wire(STRING, "name of the listener")
    host: str = wire(STRING, "host to connect to")
    port: int = wire(UINT16, "port to connect to")


@message
class Node(Message):
    """A voter."""

    node_id: int = wire(INT32, "id of the broker")
    listeners: tuple[Listener, ...] = wire(array_of(Listener), "its listeners")


@message
class DescribeQuorumResponse(Message):
    """The quorum."""

    flexible_since: ClassVar[int | None] = 0

    error_code: int = wire(INT16, "error of the request", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", since=2, default=None)
    topics: tuple[TopicData, ...] = wire(array_of(TopicData), "the topics", default=())
    nodes: tuple[Node, ...] = wire(array_of(Node), "the voters", since=2, default=())
