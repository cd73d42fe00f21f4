"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): replicas move (KIP-455)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BOOLEAN, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class ReassignablePartition(Message):
    """A partition and where it is to be."""

    partition_index: int = wire(INT32, "number of the partition")
    replicas: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True),
        "brokers that are to have a replica; null: cancel",
        default=None,
    )


@message
class ReassignableTopic(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[ReassignablePartition, ...] = wire(
        array_of(ReassignablePartition), "its partitions"
    )


@message
class AlterPartitionReassignmentsRequest(KafkaRequest):
    """Begins, replaces or cancels reassignments."""

    flexible_since: ClassVar[int | None] = 0

    timeout_ms: int = wire(INT32, "how long to wait for it", unit="ms", default=60_000)
    allow_replication_factor_change: bool = wire(
        BOOLEAN, "whether there may be more or fewer replicas", since=1, default=True
    )
    topics: tuple[ReassignableTopic, ...] = wire(
        array_of(ReassignableTopic), "the topics", default=()
    )


@message
class ReassignablePartitionResponse(Message):
    """The result of a partition."""

    partition_index: int = wire(INT32, "number of the partition")
    error_code: int = wire(INT16, "error of the partition")
    error_message: str | None = wire(NULLABLE_STRING, "the reason")


@message
class ReassignableTopicResponse(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[ReassignablePartitionResponse, ...] = wire(
        array_of(ReassignablePartitionResponse), "its partitions"
    )


@message
class AlterPartitionReassignmentsResponse(Message):
    """Each partition for itself."""

    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    allow_replication_factor_change: bool = wire(
        BOOLEAN, "as in the request", since=1, default=True
    )
    error_code: int = wire(INT16, "error of the request", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    responses: tuple[ReassignableTopicResponse, ...] = wire(
        array_of(ReassignableTopicResponse), "the topics", default=()
    )


@message
class ListPartitionReassignmentsTopics(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partition_indexes: tuple[int, ...] = wire(array_of(INT32), "numbers of the partitions")


@message
class ListPartitionReassignmentsRequest(KafkaRequest):
    """Asks for the reassignments in progress."""

    flexible_since: ClassVar[int | None] = 0

    timeout_ms: int = wire(INT32, "how long to wait for it", unit="ms", default=60_000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire(
        array_of(ListPartitionReassignmentsTopics, nullable=True),
        "the topics; null: all",
        default=None,
    )


@message
class OngoingPartitionReassignment(Message):
    """A partition whose replicas move."""

    partition_index: int = wire(INT32, "number of the partition")
    replicas: tuple[int, ...] = wire(array_of(INT32), "brokers with a replica")
    adding_replicas: tuple[int, ...] = wire(array_of(INT32), "those that get one")
    removing_replicas: tuple[int, ...] = wire(array_of(INT32), "those that lose theirs")


@message
class OngoingTopicReassignment(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[OngoingPartitionReassignment, ...] = wire(
        array_of(OngoingPartitionReassignment), "its partitions"
    )


@message
class ListPartitionReassignmentsResponse(Message):
    """The reassignments in progress."""

    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    error_code: int = wire(INT16, "error of the request", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    topics: tuple[OngoingTopicReassignment, ...] = wire(
        array_of(OngoingTopicReassignment), "the topics", default=()
    )
