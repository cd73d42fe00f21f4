"""Metadata (3), versions 0 to 13: brokers, topics, partitions and their leaders."""

from __future__ import annotations

import uuid
from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BOOLEAN, INT16, INT32, NULLABLE_STRING, STRING, UUID
from millrace_protocol.schema import Message, array_of, message, wire

NO_ID = uuid.UUID(int=0)
UNKNOWN_OPERATIONS = -(1 << 31)


@message
class MetadataRequestTopic(Message):
    """A topic by its name, or by its id (KIP-516)."""

    topic_id: uuid.UUID = wire(UUID, "id of the topic; zero: by name", since=10, default=NO_ID)
    name: str | None = wire(STRING, "name of the topic", nullable_since=10, default=None)


@message
class MetadataRequest(KafkaRequest):
    """Asks for brokers and topics: null for all; in version 0 an empty list is all."""

    flexible_since: ClassVar[int | None] = 9

    topics: tuple[MetadataRequestTopic, ...] | None = wire(
        array_of(MetadataRequestTopic), "the topics", nullable_since=1
    )
    allow_auto_topic_creation: bool = wire(
        BOOLEAN, "create topics that are not there, if the broker does", since=4, default=True
    )
    include_cluster_authorized_operations: bool = wire(
        BOOLEAN, "tell what the client may do", since=8, until=10, default=False
    )
    include_topic_authorized_operations: bool = wire(
        BOOLEAN, "tell what the client may do with each topic", since=8, default=False
    )


@message
class MetadataBroker(Message):
    """A broker and its address."""

    node_id: int = wire(INT32, "id of the broker")
    host: str = wire(STRING, "host to connect to")
    port: int = wire(INT32, "port to connect to")
    rack: str | None = wire(NULLABLE_STRING, "rack of the broker", since=1, default=None)


@message
class MetadataPartition(Message):
    """A partition and its replicas."""

    error_code: int = wire(INT16, "error of the partition")
    partition_index: int = wire(INT32, "number of the partition")
    leader_id: int = wire(INT32, "broker that leads; -1: none")
    leader_epoch: int = wire(INT32, "epoch of the leader", since=7, default=-1)
    replica_nodes: tuple[int, ...] = wire(array_of(INT32), "brokers with a replica", default=())
    isr_nodes: tuple[int, ...] = wire(array_of(INT32), "replicas in sync", default=())
    offline_replicas: tuple[int, ...] = wire(
        array_of(INT32), "replicas whose broker is not in service", since=5, default=()
    )


@message
class MetadataTopic(Message):
    """A topic."""

    error_code: int = wire(INT16, "error of the topic")
    name: str | None = wire(STRING, "name of the topic", nullable_since=12)
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=10, default=NO_ID)
    is_internal: bool = wire(BOOLEAN, "whether it belongs to the brokers", since=1, default=False)
    partitions: tuple[MetadataPartition, ...] = wire(
        array_of(MetadataPartition), "its partitions", default=()
    )
    topic_authorized_operations: int = wire(
        INT32, "bits of what the client may do", since=8, default=UNKNOWN_OPERATIONS
    )


@message
class MetadataResponse(Message):
    """The cluster, as far as this broker knows it."""

    flexible_since: ClassVar[int | None] = 9

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=3, default=0)
    brokers: tuple[MetadataBroker, ...] = wire(array_of(MetadataBroker), "the brokers", default=())
    cluster_id: str | None = wire(NULLABLE_STRING, "id of the cluster", since=2, default=None)
    controller_id: int = wire(INT32, "the active controller; -1: none", since=1, default=-1)
    topics: tuple[MetadataTopic, ...] = wire(array_of(MetadataTopic), "the topics", default=())
    cluster_authorized_operations: int = wire(
        INT32, "bits of what the client may do", since=8, until=10, default=UNKNOWN_OPERATIONS
    )
    error_code: int = wire(INT16, "error of the request", since=13, default=0)
