"""DescribeProducers (61): the idempotent producers that partitions know (KIP-664)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class TopicRequest(Message):
    """Partitions of a topic."""

    name: str = wire(STRING, "name of the topic")
    partition_indexes: tuple[int, ...] = wire(array_of(INT32), "numbers of the partitions")


@message
class DescribeProducersRequest(KafkaRequest):
    """Asks for producers."""

    flexible_since: ClassVar[int | None] = 0

    topics: tuple[TopicRequest, ...] = wire(array_of(TopicRequest), "the topics")


@message
class ProducerState(Message):
    """A producer and the last batch of it."""

    producer_id: int = wire(INT64, "id of the producer")
    producer_epoch: int = wire(INT32, "its epoch")
    last_sequence: int = wire(INT32, "sequence of its last record; -1: unknown", default=-1)
    last_timestamp: int = wire(INT64, "timestamp of its last batch", unit="ms", default=-1)
    coordinator_epoch: int = wire(INT32, "epoch of its transactions; -1: none", default=-1)
    current_txn_start_offset: int = wire(
        INT64, "where its open transaction begins; -1: none", default=-1
    )


@message
class PartitionResponse(Message):
    """A partition and its producers."""

    partition_index: int = wire(INT32, "number of the partition")
    error_code: int = wire(INT16, "error of the partition")
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    active_producers: tuple[ProducerState, ...] = wire(
        array_of(ProducerState), "its producers", default=()
    )


@message
class TopicResponse(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[PartitionResponse, ...] = wire(array_of(PartitionResponse), "its partitions")


@message
class DescribeProducersResponse(Message):
    """Each partition for itself."""

    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    topics: tuple[TopicResponse, ...] = wire(array_of(TopicResponse), "the topics", default=())
