"""ConsumerGroupDescribe (69): groups whose partitions the broker assigns (KIP-848).

The broker has none. A tool that does not know of which kind a group is asks here first.
"""

from __future__ import annotations

import uuid
from typing import ClassVar

from millrace_protocol.kafka.metadata import NO_ID, UNKNOWN_OPERATIONS
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
from millrace_protocol.schema import Message, Struct, array_of, message, wire


@message
class ConsumerGroupDescribeRequest(KafkaRequest):
    """Asks for groups with their members."""

    flexible_since: ClassVar[int | None] = 0

    group_ids: tuple[str, ...] = wire(array_of(STRING), "names of the groups")
    include_authorized_operations: bool = wire(
        BOOLEAN, "tell what the client may do", default=False
    )


@message
class TopicPartitions(Message):
    """Partitions of a topic."""

    topic_id: uuid.UUID = wire(UUID, "id of the topic", default=NO_ID)
    topic_name: str = wire(STRING, "name of the topic", default="")
    partitions: tuple[int, ...] = wire(array_of(INT32), "numbers of the partitions", default=())


@message
class Assignment(Message):
    """Partitions of a member."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(
        array_of(TopicPartitions), "the partitions by topic", default=()
    )


@message
class Member(Message):
    """A member, with what it has and what it is to have."""

    member_id: str = wire(STRING, "id of the member")
    instance_id: str | None = wire(NULLABLE_STRING, "id of a static member")
    rack_id: str | None = wire(NULLABLE_STRING, "rack of its client")
    member_epoch: int = wire(INT32, "its epoch")
    client_id: str = wire(STRING, "name of its client")
    client_host: str = wire(STRING, "address of its client")
    subscribed_topic_names: tuple[str, ...] = wire(array_of(STRING), "topics it subscribes to")
    subscribed_topic_regex: str | None = wire(NULLABLE_STRING, "pattern of their names")
    assignment: Assignment = wire(Struct(Assignment), "what it has")
    target_assignment: Assignment = wire(Struct(Assignment), "what it is to have")
    member_type: int = wire(INT8, "0: classic, 1: consumer; -1: unknown", since=1, default=-1)


@message
class DescribedGroup(Message):
    """A group, or why there is none."""

    error_code: int = wire(INT16, "error of the group")
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    group_id: str = wire(STRING, "name of the group", default="")
    group_state: str = wire(STRING, "its state", default="")
    group_epoch: int = wire(INT32, "epoch of the group", default=0)
    assignment_epoch: int = wire(INT32, "epoch of its assignment", default=0)
    assignor_name: str = wire(STRING, "name of the assignor", default="")
    members: tuple[Member, ...] = wire(array_of(Member), "the members", default=())
    authorized_operations: int = wire(
        INT32, "what the client may do, as bits", default=UNKNOWN_OPERATIONS
    )


@message
class ConsumerGroupDescribeResponse(Message):
    """Each group for itself."""

    flexible_since: ClassVar[int | None] = 0

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    groups: tuple[DescribedGroup, ...] = wire(array_of(DescribedGroup), "the groups", default=())
