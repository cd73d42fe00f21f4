"""What a coordinator wants done, and its answers, as plain values.

Owns the shapes and the order that the shell owes them. Every token that the shell hands in with a
request comes back in exactly one `Reply`, at once or later.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.records import CommittedOffset, GroupRecord
from millrace_server.group.requests import Moment
from millrace_server.group.states import GroupState

Token = Hashable
"""Whatever the shell knows a waiting request by; never None. How many there are is bounded by the
requests that connections may have in flight."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An expected refusal: the code, and a message a person can act on.

    `member_id` is what a refused join is told about its id: the one to come back with for
    MEMBER_ID_REQUIRED, otherwise the one that it sent.
    """

    code: ErrorCode
    message: str
    member_id: str = ""

    @classmethod
    def of(cls, refused: ApiError, member_id: str = "") -> Refusal:
        return cls(refused.code, refused.message, member_id)

    @classmethod
    def saying(cls, code: ErrorCode, message: str, member_id: str = "") -> Refusal:
        """A refusal whose message is cut to what an answer may hold."""
        return cls.of(ApiError(code, message), member_id)


class JoinedMember(NamedTuple):
    """A member as the leader sees it; `metadata` is that of the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a join: a generation. Only the leader is told the members.

    With `skip_assignment` the leader knows the members but must not compute an assignment: the
    generation has one (KIP-814).
    """

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to a sync: the member's assignment, empty when the leader gave it none."""

    protocol_type: str
    protocol: str
    assignment: bytes


class LeftMember(NamedTuple):
    """What became of one member of a leave; `refusal` is None when it is gone."""

    member_id: str
    instance_id: str | None
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Left:
    """The answer to a leave, in the order of the request."""

    members: tuple[LeftMember, ...]


class PartitionOutcome(NamedTuple):
    """What became of one partition of a commit or a deletion; `refusal` is None when it is done."""

    topic: str
    partition: int
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class PartitionOutcomes:
    """The answer to a commit or to a deletion of offsets, in the order of the request."""

    partitions: tuple[PartitionOutcome, ...]


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """The answer to a group's deletion."""

    group_id: str


class FetchedOffset(NamedTuple):
    """What a group has committed for a partition; None and no refusal when it has not."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    refusal: Refusal | None = None


class GroupListing(NamedTuple):
    """A group in a list; `protocol` is "" unless the group is stable."""

    group_id: str
    protocol_type: str
    state: GroupState
    member_count: int
    protocol: str


class DescribedMember(NamedTuple):
    """A member to a person; metadata and assignment are empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group to a person; `protocol` is "" unless the group is stable."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    generation: int
    leader_id: str
    members: tuple[DescribedMember, ...]


Result = Joined | Synced | Left | PartitionOutcomes | GroupDeleted | Refusal


@dataclass(frozen=True, slots=True)
class Append:
    """Records to append to the offsets partition as one batch.

    The shell appends in the order in which it got these effects, waits until the batch is durable,
    and then calls `on_appended(append_id)`, again in that order; or `on_append_failed`.
    """

    append_id: int
    records: tuple[GroupRecord, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the request that came with `token`. Waits for nothing beside it."""

    token: Token
    result: Result


Effect = Append | Reply


@dataclass(slots=True)
class Turn:
    """One event: when it happens, and the effects it has had so far, in order.

    `perhaps_idle` names groups that may have nothing left that is worth remembering.
    """

    moment: Moment
    effects: list[Effect] = field(default_factory=list)
    perhaps_idle: list[str] = field(default_factory=list)

    def reply(self, token: Token | None, result: Result) -> None:
        """Answers a request; a token of None is nobody's."""
        if token is not None:
            self.effects.append(Reply(token, result))
