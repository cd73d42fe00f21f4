"""DeleteRecords (21): the oldest records of partitions."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT16, INT32, INT64, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class DeleteRecordsPartition(Message):
    """A partition and where it is to begin."""

    partition_index: int = wire(INT32, "number of the partition")
    offset: int = wire(INT64, "first offset that stays; -1: the high watermark")


@message
class DeleteRecordsTopic(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[DeleteRecordsPartition, ...] = wire(
        array_of(DeleteRecordsPartition), "its partitions"
    )


@message
class DeleteRecordsRequest(KafkaRequest):
    """Deletes the records before an offset."""

    flexible_since: ClassVar[int | None] = 2

    topics: tuple[DeleteRecordsTopic, ...] = wire(array_of(DeleteRecordsTopic), "the topics")
    timeout_ms: int = wire(INT32, "how long to wait for replicas", unit="ms", default=30_000)


@message
class DeleteRecordsPartitionResult(Message):
    """Where a partition begins now."""

    partition_index: int = wire(INT32, "number of the partition")
    low_watermark: int = wire(INT64, "its first offset; -1: unknown")
    error_code: int = wire(INT16, "error of the partition")


@message
class DeleteRecordsTopicResult(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(
        array_of(DeleteRecordsPartitionResult), "its partitions"
    )


@message
class DeleteRecordsResponse(Message):
    """Each partition for itself."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(
        array_of(DeleteRecordsTopicResult), "the topics", default=()
    )
