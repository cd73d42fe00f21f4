"""OffsetCommit, OffsetFetch, OffsetDelete: how far a group has come in each partition."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire

_GROUP = "group name"
_ERROR = "error of this partition (W-7)"
_SENTENCE = "the reason, for a person"


@message
class CommitPartition(Message):
    """The committed offset of one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    offset: int = wire(INT64, "the next record to process")
    leader_epoch: int = wire(INT32, "leader epoch of the last record processed; -1 if not known")
    metadata: str | None = wire(NULLABLE_STRING, "text of the client, stored beside the offset")


@message
class OffsetCommitRequest(Request):
    """Commits offsets, as a member or to a group without members."""

    group: str = wire(STRING, _GROUP)
    generation: int = wire(INT32, "the generation the member joined; -1 for no member")
    member_id: str = wire(STRING, "the id that JoinGroup gave; empty for no member")
    instance_id: str | None = wire(NULLABLE_STRING, "name of a static member; null for none")
    partitions: tuple[CommitPartition, ...] = wire(
        array_of(CommitPartition), "the offsets to commit"
    )


@message
class CommittedPartition(Message):
    """The result of one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, _ERROR)
    error_message: str | None = wire(NULLABLE_STRING, _SENTENCE)


@message
class OffsetCommitResponse(Message):
    """One result per partition, in the request's order; the commits are durable."""

    partitions: tuple[CommittedPartition, ...] = wire(array_of(CommittedPartition), "the results")


@message
class GroupPartition(Message):
    """One partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")


@message
class OffsetFetchRequest(Request):
    """Asks for the committed offsets of a group."""

    group: str = wire(STRING, _GROUP)
    partitions: tuple[GroupPartition, ...] | None = wire(
        array_of(GroupPartition, nullable=True),
        "the partitions; null for all with a committed offset",
    )


@message
class CommittedOffset(Message):
    """The committed offset of one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, _ERROR)
    error_message: str | None = wire(NULLABLE_STRING, _SENTENCE)
    offset: int = wire(INT64, "the next record to process; -1 when nothing is committed")
    leader_epoch: int = wire(INT32, "as committed; -1 if not known")
    metadata: str | None = wire(NULLABLE_STRING, "as committed")
    commit_time_ms: int = wire(
        INT64, "time of the commit; -1 when nothing is committed", unit="ms since the epoch"
    )


@message
class OffsetFetchResponse(Message):
    """One result per partition, in the request's order."""

    partitions: tuple[CommittedOffset, ...] = wire(array_of(CommittedOffset), "the results")


@message
class OffsetDeleteRequest(Request):
    """Deletes committed offsets of topics that no member subscribes to."""

    group: str = wire(STRING, _GROUP)
    partitions: tuple[GroupPartition, ...] = wire(array_of(GroupPartition), "the partitions")


@message
class OffsetDeleteResponse(Message):
    """One result per partition, in the request's order."""

    partitions: tuple[CommittedPartition, ...] = wire(array_of(CommittedPartition), "the results")
