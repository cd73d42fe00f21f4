"""CreateTopics (19) and DeleteTopics (20)."""

from __future__ import annotations

import uuid
from typing import ClassVar

from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    UUID,
)
from millrace_protocol.schema import Message, array_of, message, wire


@message
class CreatableReplicaAssignment(Message):
    """Where a partition is to be."""

    partition_index: int = wire(INT32, "number of the partition")
    broker_ids: tuple[int, ...] = wire(array_of(INT32), "brokers with a replica")


@message
class CreatableTopicConfig(Message):
    """A setting."""

    name: str = wire(STRING, "name of the setting")
    value: str | None = wire(NULLABLE_STRING, "its value; null: the default")


@message
class CreatableTopic(Message):
    """A topic to create."""

    name: str = wire(STRING, "name of the topic")
    num_partitions: int = wire(INT32, "how many partitions; -1: as the broker decides")
    replication_factor: int = wire(INT16, "how many replicas; -1: as the broker decides")
    assignments: tuple[CreatableReplicaAssignment, ...] = wire(
        array_of(CreatableReplicaAssignment), "where the partitions are to be", default=()
    )
    configs: tuple[CreatableTopicConfig, ...] = wire(
        array_of(CreatableTopicConfig), "the settings", default=()
    )


@message
class CreateTopicsRequest(KafkaRequest):
    """Creates topics."""

    flexible_since: ClassVar[int | None] = 5

    topics: tuple[CreatableTopic, ...] = wire(array_of(CreatableTopic), "the topics")
    timeout_ms: int = wire(INT32, "how long to wait for them", unit="ms", default=60_000)
    validate_only: bool = wire(BOOLEAN, "says only whether they could be", default=False)


@message
class CreatableTopicConfigs(Message):
    """A setting in force."""

    name: str = wire(STRING, "name of the setting")
    value: str | None = wire(NULLABLE_STRING, "its value")
    read_only: bool = wire(BOOLEAN, "whether it cannot be changed")
    config_source: int = wire(INT8, "where it comes from; -1: unknown", default=-1)
    is_sensitive: bool = wire(BOOLEAN, "whether it is secret", default=False)


@message
class CreatableTopicResult(Message):
    """A topic that was created, or not."""

    name: str = wire(STRING, "name of the topic")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=7, default=NO_ID)
    error_code: int = wire(INT16, "error of the topic", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    topic_config_error_code: int = wire(
        INT16, "why there are no settings", since=5, tag=0, default=0
    )
    num_partitions: int = wire(INT32, "how many partitions", since=5, default=-1)
    replication_factor: int = wire(INT16, "how many replicas", since=5, default=-1)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire(
        array_of(CreatableTopicConfigs, nullable=True), "the settings", since=5, default=()
    )


@message
class CreateTopicsResponse(Message):
    """Each topic for itself."""

    flexible_since: ClassVar[int | None] = 5

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    topics: tuple[CreatableTopicResult, ...] = wire(
        array_of(CreatableTopicResult), "the topics", default=()
    )


@message
class DeleteTopicState(Message):
    """A topic by its name or by its id."""

    name: str | None = wire(NULLABLE_STRING, "name of the topic; null: by id", default=None)
    topic_id: uuid.UUID = wire(UUID, "id of the topic", default=NO_ID)


@message
class DeleteTopicsRequest(KafkaRequest):
    """Deletes topics."""

    flexible_since: ClassVar[int | None] = 4

    topics: tuple[DeleteTopicState, ...] = wire(
        array_of(DeleteTopicState), "the topics", since=6, default=()
    )
    topic_names: tuple[str, ...] = wire(array_of(STRING), "their names", until=5, default=())
    timeout_ms: int = wire(INT32, "how long to wait for it", unit="ms", default=0)


@message
class DeletableTopicResult(Message):
    """A topic that was deleted, or not."""

    name: str | None = wire(STRING, "name of the topic", nullable_since=6)
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=6, default=NO_ID)
    error_code: int = wire(INT16, "error of the topic", default=0)
    error_message: str | None = wire(NULLABLE_STRING, "the reason", since=5, default=None)


@message
class DeleteTopicsResponse(Message):
    """Each topic for itself."""

    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    responses: tuple[DeletableTopicResult, ...] = wire(
        array_of(DeletableTopicResult), "the topics", default=()
    )
