"""OffsetDelete (47): a group forgets offsets."""

from __future__ import annotations

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT16, INT32, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class OffsetDeleteRequestPartition(Message):
    """A partition."""

    partition_index: int = wire(INT32, "number of the partition")


@message
class OffsetDeleteRequestTopic(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[OffsetDeleteRequestPartition, ...] = wire(
        array_of(OffsetDeleteRequestPartition), "its partitions"
    )


@message
class OffsetDeleteRequest(KafkaRequest):
    """Deletes committed offsets."""

    group_id: str = wire(STRING, "name of the group")
    topics: tuple[OffsetDeleteRequestTopic, ...] = wire(
        array_of(OffsetDeleteRequestTopic), "the topics"
    )


@message
class OffsetDeleteResponsePartition(Message):
    """The result of a partition."""

    partition_index: int = wire(INT32, "number of the partition")
    error_code: int = wire(INT16, "error of the partition")


@message
class OffsetDeleteResponseTopic(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[OffsetDeleteResponsePartition, ...] = wire(
        array_of(OffsetDeleteResponsePartition), "its partitions"
    )


@message
class OffsetDeleteResponse(Message):
    """Each partition for itself, or an error for all."""

    error_code: int = wire(INT16, "error of the request", default=0)
    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    topics: tuple[OffsetDeleteResponseTopic, ...] = wire(
        array_of(OffsetDeleteResponseTopic), "the topics", default=()
    )
