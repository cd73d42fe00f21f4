"""ListOffsets (2), versions 1 to 11: the ends of partitions, and points in time."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT8, INT16, INT32, INT64, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class ListOffsetsPartition(Message):
    """A partition and a time."""

    partition_index: int = wire(INT32, "number of the partition")
    current_leader_epoch: int = wire(
        INT32, "epoch that the client knows; -1: none", since=4, default=-1
    )
    timestamp: int = wire(
        INT64, "time in ms; -1 the end, -2 the start, -3 the largest time", default=-1
    )


@message
class ListOffsetsTopic(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[ListOffsetsPartition, ...] = wire(
        array_of(ListOffsetsPartition), "its partitions"
    )


@message
class ListOffsetsRequest(KafkaRequest):
    """Asks for offsets."""

    flexible_since: ClassVar[int | None] = 6

    replica_id: int = wire(INT32, "-1 for a consumer")
    isolation_level: int = wire(INT8, "1: only what is committed", since=2, default=0)
    topics: tuple[ListOffsetsTopic, ...] = wire(
        array_of(ListOffsetsTopic), "the topics", default=()
    )
    timeout_ms: int = wire(INT32, "how long to wait", unit="ms", since=10, default=0)


@message
class ListOffsetsPartitionResponse(Message):
    """The offset of a partition."""

    partition_index: int = wire(INT32, "number of the partition")
    error_code: int = wire(INT16, "error of the partition")
    timestamp: int = wire(INT64, "time of the record; -1: none")
    offset: int = wire(INT64, "the offset; -1: none")
    leader_epoch: int = wire(INT32, "epoch of the record before", since=4, default=-1)


@message
class ListOffsetsTopicResponse(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(
        array_of(ListOffsetsPartitionResponse), "its partitions"
    )


@message
class ListOffsetsResponse(Message):
    """The offsets."""

    flexible_since: ClassVar[int | None] = 6

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=2, default=0)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(
        array_of(ListOffsetsTopicResponse), "the topics", default=()
    )
