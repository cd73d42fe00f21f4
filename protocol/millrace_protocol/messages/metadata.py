"""Metadata: brokers, topics, partitions and their leaders."""

from __future__ import annotations

import uuid

from millrace_protocol.primitives import (
    BOOLEAN,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    UUID,
)
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class MetadataRequest(Request):
    """Asks for the brokers, and for some or all topics."""

    topics: tuple[str, ...] | None = wire(
        array_of(STRING, nullable=True), "topic names; null for all topics, empty for none"
    )


@message
class BrokerMetadata(Message):
    """One broker and its address."""

    node_id: int = wire(INT32, "the broker's id")
    host: str = wire(STRING, "host name or address to connect to")
    port: int = wire(INT32, "TCP port to connect to")
    rack: str | None = wire(NULLABLE_STRING, "where the broker is; null if it does not say")


@message
class PartitionMetadata(Message):
    """One partition and its replicas."""

    error_code: int = wire(INT16, "error of this partition (W-7)")
    partition: int = wire(INT32, "partition number, from 0")
    leader_id: int = wire(INT32, "broker that leads; -1 when there is none")
    leader_epoch: int = wire(INT32, "epoch of that leader")
    replicas: tuple[int, ...] = wire(array_of(INT32), "brokers that hold the partition")
    isr: tuple[int, ...] = wire(array_of(INT32), "replicas in sync with the leader")


@message
class TopicMetadata(Message):
    """One topic."""

    error_code: int = wire(INT16, "error of this topic (W-7); the rest is empty then")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    name: str = wire(STRING, "topic name")
    topic_id: uuid.UUID = wire(UUID, "identity of the topic; differs after delete and create")
    is_internal: bool = wire(BOOLEAN, "whether the broker itself owns the topic")
    partitions: tuple[PartitionMetadata, ...] = wire(
        array_of(PartitionMetadata), "every partition, by number"
    )


@message
class MetadataResponse(Message):
    """The cluster, as far as this broker knows it."""

    cluster_id: str = wire(STRING, "identity of the cluster")
    controller_id: int = wire(INT32, "broker that changes topics; -1 when there is none")
    brokers: tuple[BrokerMetadata, ...] = wire(array_of(BrokerMetadata), "every live broker")
    topics: tuple[TopicMetadata, ...] = wire(array_of(TopicMetadata), "the topics asked for")
