"""OffsetCommit, OffsetFetch, OffsetDelete: how far a group has come in each partition."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, wire

_GROUP = "group name"
_ERROR = "error of this partition (W-7)"
_SENTENCE = "what was wrong, for a person"


@dataclass(slots=True)
class CommitPartition(Message):
    """How far the group has come in one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    offset: int = wire(INT64, "the next record to process")
    leader_epoch: int = wire(INT32, "leader epoch of the last record processed; -1 if not known")
    metadata: str | None = wire(NULLABLE_STRING, "anything the consumer wants to keep beside it")


@dataclass(slots=True)
class OffsetCommitRequest(Request):
    """Commits offsets as a member, or for a group without members as nobody."""

    group: str = wire(STRING, _GROUP)
    generation: int = wire(INT32, "the generation the member joined; -1 for no member")
    member_id: str = wire(STRING, "the id that JoinGroup gave; empty for no member")
    instance_id: str | None = wire(NULLABLE_STRING, "name of a static member; null for none")
    partitions: tuple[CommitPartition, ...] = wire(array_of(CommitPartition), "what to commit")


@dataclass(slots=True)
class CommittedPartition(Message):
    """What became of one commit."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, _ERROR)
    error_message: str | None = wire(NULLABLE_STRING, _SENTENCE)


@dataclass(slots=True)
class OffsetCommitResponse(Message):
    """One result per partition, in the request's order; the commits are as durable as acks=all."""

    partitions: tuple[CommittedPartition, ...] = wire(array_of(CommittedPartition), "the results")


@dataclass(slots=True)
class GroupPartition(Message):
    """A partition that is asked for."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")


@dataclass(slots=True)
class OffsetFetchRequest(Request):
    """Asks how far a group has come."""

    group: str = wire(STRING, _GROUP)
    partitions: tuple[GroupPartition, ...] | None = wire(
        array_of(GroupPartition, nullable=True), "which; null for all with a committed offset"
    )


@dataclass(slots=True)
class CommittedOffset(Message):
    """How far the group has come in one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, _ERROR)
    error_message: str | None = wire(NULLABLE_STRING, _SENTENCE)
    offset: int = wire(INT64, "the next record to process; -1 when nothing is committed")
    leader_epoch: int = wire(INT32, "as committed; -1 if not known")
    metadata: str | None = wire(NULLABLE_STRING, "as committed")
    commit_time_ms: int = wire(INT64, "when; -1 for never", unit="ms since the epoch")


@dataclass(slots=True)
class OffsetFetchResponse(Message):
    """One answer per partition, in the request's order."""

    partitions: tuple[CommittedOffset, ...] = wire(array_of(CommittedOffset), "the answers")


@dataclass(slots=True)
class OffsetDeleteRequest(Request):
    """Forgets committed offsets of topics that no member subscribes to."""

    group: str = wire(STRING, _GROUP)
    partitions: tuple[GroupPartition, ...] = wire(array_of(GroupPartition), "which")


@dataclass(slots=True)
class OffsetDeleteResponse(Message):
    """One result per partition, in the request's order."""

    partitions: tuple[CommittedPartition, ...] = wire(array_of(CommittedPartition), "the results")
