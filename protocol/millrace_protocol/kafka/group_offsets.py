"""OffsetCommit (8) and OffsetFetch (9): how far a group has come."""

from __future__ import annotations

import uuid
from typing import ClassVar

from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID,
)
from millrace_protocol.schema import Message, array_of, message, wire


@message
class OffsetCommitRequestPartition(Message):
    """An offset."""

    partition_index: int = wire(INT32, "number of the partition")
    committed_offset: int = wire(INT64, "offset of the next record to process")
    committed_leader_epoch: int = wire(
        INT32, "epoch of the last record; -1: unknown", since=6, default=-1
    )
    committed_metadata: str | None = wire(NULLABLE_STRING, "a text of the client", default="")


@message
class OffsetCommitRequestTopic(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic", until=9, default="")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=10, default=NO_ID)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire(
        array_of(OffsetCommitRequestPartition), "its partitions", default=()
    )


@message
class OffsetCommitRequest(KafkaRequest):
    """Commits offsets, as a member or from outside the group."""

    flexible_since: ClassVar[int | None] = 8

    group_id: str = wire(STRING, "name of the group")
    generation_id: int = wire(INT32, "the generation; -1: from outside", default=-1)
    member_id: str = wire(STRING, "id of the member; empty: from outside", default="")
    group_instance_id: str | None = wire(
        NULLABLE_STRING, "id of a static member", since=7, default=None
    )
    retention_time_ms: int = wire(INT64, "not used any more", until=4, default=-1)
    topics: tuple[OffsetCommitRequestTopic, ...] = wire(
        array_of(OffsetCommitRequestTopic), "the topics", default=()
    )


@message
class OffsetCommitResponsePartition(Message):
    """The result of a partition."""

    partition_index: int = wire(INT32, "number of the partition")
    error_code: int = wire(INT16, "error of the partition")


@message
class OffsetCommitResponseTopic(Message):
    """A topic."""

    name: str = wire(STRING, "name of the topic", until=9, default="")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=10, default=NO_ID)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire(
        array_of(OffsetCommitResponsePartition), "its partitions", default=()
    )


@message
class OffsetCommitResponse(Message):
    """Each partition for itself."""

    flexible_since: ClassVar[int | None] = 8

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=3, default=0)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire(
        array_of(OffsetCommitResponseTopic), "the topics", default=()
    )


@message
class OffsetFetchRequestTopic(Message):
    """A topic of the only group."""

    name: str = wire(STRING, "name of the topic")
    partition_indexes: tuple[int, ...] = wire(array_of(INT32), "numbers of the partitions")


@message
class OffsetFetchRequestTopics(Message):
    """A topic of one of several groups."""

    name: str = wire(STRING, "name of the topic", until=9, default="")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=10, default=NO_ID)
    partition_indexes: tuple[int, ...] = wire(
        array_of(INT32), "numbers of the partitions", default=()
    )


@message
class OffsetFetchRequestGroup(Message):
    """A group."""

    group_id: str = wire(STRING, "name of the group")
    member_id: str | None = wire(NULLABLE_STRING, "id of the member", since=9, default=None)
    member_epoch: int = wire(INT32, "its epoch; -1: none", since=9, default=-1)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = wire(
        array_of(OffsetFetchRequestTopics, nullable=True), "null: all", default=None
    )


@message
class OffsetFetchRequest(KafkaRequest):
    """Asks for the offsets of a group, or since version 8 of several."""

    flexible_since: ClassVar[int | None] = 6

    group_id: str = wire(STRING, "name of the group", until=7, default="")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(
        array_of(OffsetFetchRequestTopic), "null: all", until=7, nullable_since=2, default=()
    )
    groups: tuple[OffsetFetchRequestGroup, ...] = wire(
        array_of(OffsetFetchRequestGroup), "the groups", since=8, default=()
    )
    require_stable: bool = wire(
        BOOLEAN, "wait for transactions that commit offsets", since=7, default=False
    )


@message
class OffsetFetchResponsePartition(Message):
    """An offset; -1 where none is committed."""

    partition_index: int = wire(INT32, "number of the partition")
    committed_offset: int = wire(INT64, "offset of the next record; -1: none")
    committed_leader_epoch: int = wire(
        INT32, "epoch of the last record; -1: unknown", since=5, default=-1
    )
    metadata: str | None = wire(NULLABLE_STRING, "a text of the client", default="")
    error_code: int = wire(INT16, "error of the partition", default=0)


@message
class OffsetFetchResponseTopic(Message):
    """A topic of the only group."""

    name: str = wire(STRING, "name of the topic")
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(
        array_of(OffsetFetchResponsePartition), "its partitions"
    )


@message
class OffsetFetchResponseTopics(Message):
    """A topic of one of several groups."""

    name: str = wire(STRING, "name of the topic", until=9, default="")
    topic_id: uuid.UUID = wire(UUID, "id of the topic", since=10, default=NO_ID)
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(
        array_of(OffsetFetchResponsePartition), "its partitions", default=()
    )


@message
class OffsetFetchResponseGroup(Message):
    """A group."""

    group_id: str = wire(STRING, "name of the group")
    topics: tuple[OffsetFetchResponseTopics, ...] = wire(
        array_of(OffsetFetchResponseTopics), "the topics", default=()
    )
    error_code: int = wire(INT16, "error of the group", default=0)


@message
class OffsetFetchResponse(Message):
    """The offsets."""

    flexible_since: ClassVar[int | None] = 6

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=3, default=0)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(
        array_of(OffsetFetchResponseTopic), "the topics", until=7, default=()
    )
    error_code: int = wire(INT16, "error of the request", since=2, until=7, default=0)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire(
        array_of(OffsetFetchResponseGroup), "one for each group", since=8, default=()
    )
