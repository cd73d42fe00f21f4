"""CreateTopics, DeleteTopics, CreatePartitions: the life of a topic."""

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

_VALIDATE_ONLY = "check only: the response is the same, and nothing changes"


@message
class TopicConfig(Message):
    """One configuration entry of a topic."""

    name: str = wire(STRING, "configuration key")
    value: str | None = wire(NULLABLE_STRING, "its value as text; null for the broker's default")


@message
class ReplicaAssignment(Message):
    """The brokers of one partition."""

    replicas: tuple[int, ...] = wire(
        array_of(INT32), "ids of the brokers that get a replica, the preferred leader first"
    )


@message
class NewTopic(Message):
    """A topic to create."""

    name: str = wire(STRING, "topic name (W-6.5)")
    partitions: int = wire(INT32, "number of partitions; -1 for the broker's default")
    replication_factor: int = wire(INT16, "copies of each partition; -1 for the broker's default")
    configs: tuple[TopicConfig, ...] = wire(
        array_of(TopicConfig), "settings that differ from the defaults"
    )
    assignments: tuple[ReplicaAssignment, ...] = wire(
        array_of(ReplicaAssignment),
        "one for each partition, and then the two numbers above are -1; empty where the "
        "controller places the replicas",
        default=(),
    )


@message
class CreateTopicsRequest(Request):
    """Creates topics, each separately: one may fail and another not."""

    topics: tuple[NewTopic, ...] = wire(array_of(NewTopic), "a name may stand once")
    validate_only: bool = wire(BOOLEAN, _VALIDATE_ONLY)


@message
class CreatedTopic(Message):
    """The result of one topic."""

    name: str = wire(STRING, "topic name")
    error_code: int = wire(INT16, "error of this topic (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    topic_id: uuid.UUID = wire(UUID, "identity of the new topic; zero on error")
    partitions: int = wire(INT32, "number of partitions; -1 on error")
    replication_factor: int = wire(INT16, "copies of each partition; -1 on error")


@message
class CreateTopicsResponse(Message):
    """One result per topic, in the request's order."""

    topics: tuple[CreatedTopic, ...] = wire(array_of(CreatedTopic), "the results")


@message
class TopicResult(Message):
    """The result of a change to one topic."""

    name: str = wire(STRING, "topic name")
    error_code: int = wire(INT16, "error of this topic (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")


@message
class DeleteTopicsRequest(Request):
    """Deletes topics with all their records."""

    topics: tuple[str, ...] = wire(array_of(STRING), "topic names")


@message
class DeleteTopicsResponse(Message):
    """One result per topic, in the request's order."""

    topics: tuple[TopicResult, ...] = wire(array_of(TopicResult), "the results")


@message
class PartitionCount(Message):
    """A topic and its new number of partitions."""

    name: str = wire(STRING, "topic name")
    partitions: int = wire(INT32, "number of partitions afterwards; more than there are")
    assignments: tuple[ReplicaAssignment, ...] = wire(
        array_of(ReplicaAssignment),
        "one for each new partition; empty where the controller places the replicas",
        default=(),
    )


@message
class CreatePartitionsRequest(Request):
    """Adds partitions to topics. Records stay where they are; keys may map to other partitions."""

    topics: tuple[PartitionCount, ...] = wire(array_of(PartitionCount), "a name may stand once")
    validate_only: bool = wire(BOOLEAN, _VALIDATE_ONLY)


@message
class CreatePartitionsResponse(Message):
    """One result per topic, in the request's order."""

    topics: tuple[TopicResult, ...] = wire(array_of(TopicResult), "the results")
