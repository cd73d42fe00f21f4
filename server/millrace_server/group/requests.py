"""Requests to a group coordinator and their results, as plain values of no dialect.

Owns the shapes, and the checks that need no group. A request that is refused gets an `ApiError`
instead of its result. A member id of "" means that the caller has none, a generation of -1 that it
is no member. Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.pending_appends import PendingAppends
from millrace_server.coordinator.shard import Append, Effects, Reply
from millrace_server.group.records import CommittedOffset, GroupRecord
from millrace_server.group.states import GroupState
from millrace_server.group_config import (
    GROUP_ID_LENGTH_MAX,
    NAME_LENGTH_MAX,
    PROTOCOLS_MAX,
    GroupConfig,
)

NO_MEMBER = ""
NO_GENERATION = -1


class OfferedProtocol(NamedTuple):
    """An assignor that a member supports, and what the member tells the leader through it."""

    name: str
    metadata: bytes


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A member wants to be in the next generation, or in this one.

    `protocols` are in the order of the member's preference. A `rebalance_timeout_ms` of 0 or less
    means the session timeout.
    """

    group_id: str
    member_id: str
    protocol_type: str
    protocols: tuple[OfferedProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str | None = None
    """That of the client; None for one without a share (`millrace_server.principal_shares`)."""
    requires_known_member_id: bool = True
    """Whether a new member first gets its id (KIP-394); False for clients that do not know how."""
    can_skip_assignment: bool = True
    """Whether a static leader that restarts understands `skip_assignment` (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A member wants its assignment; the leader brings those of all members."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A member is alive."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member by its id, or a static member by its instance id with an empty member id."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Members leave, or are removed by an operator."""

    group_id: str
    members: tuple[LeavingMember, ...]


class OffsetToCommit(NamedTuple):
    """`offset` is the next record that the group wants from the partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Offsets to commit: by a member, or by any client while the group has no members."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    instance_id: str | None = None
    principal: str | None = None
    """Who commits; as in `JoinGroup`."""
    takes_negative: bool = False
    """An offset below 0 stands for none. Clients of Kafka commit such offsets: KafkaJS has -2 stand
    for the start of the log and -1 for its end."""


class MemberIdRequired(ApiError):
    """A new member has to join again with `member_id` (KIP-394)."""

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__(
            ErrorCode.MEMBER_ID_REQUIRED, f"Join group {group_id!r} again as member {member_id!r}"
        )
        self.member_id = member_id


class JoinedMember(NamedTuple):
    """A member as the leader gets it; `metadata` is that of the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResult:
    """A generation. Only the leader gets the members.

    With `skip_assignment` the leader gets the members and must not compute an assignment: the
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
class SyncGroupResult:
    """The member's assignment, empty when the leader gave it none."""

    protocol_type: str
    protocol: str
    assignment: bytes


class LeaveMemberResult(NamedTuple):
    """One member of a leave; `error` is None when it has left."""

    member_id: str
    instance_id: str | None
    error: ApiError | None


@dataclass(frozen=True, slots=True)
class LeaveGroupResult:
    """The members in the order of the request."""

    members: tuple[LeaveMemberResult, ...]


class PartitionResult(NamedTuple):
    """One partition of a commit or a deletion; `error` is None when it is done."""

    topic: str
    partition: int
    error: ApiError | None


@dataclass(frozen=True, slots=True)
class OffsetsResult:
    """The partitions of a commit or of a deletion of offsets, in the order of the request."""

    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroupResult:
    """The group is deleted."""

    group_id: str


class FetchedOffset(NamedTuple):
    """What a group has committed for a partition; None and no error when it has not."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    error: ApiError | None = None


class ListedGroup(NamedTuple):
    """A group in a list; `protocol` is "" unless the group is stable."""

    group_id: str
    protocol_type: str
    state: GroupState
    member_count: int
    protocol: str


class DescribedMember(NamedTuple):
    """A member; metadata and assignment are empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group with its members; `protocol` is "" unless the group is stable."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    generation: int
    leader_id: str
    members: tuple[DescribedMember, ...]


GroupResult = (
    JoinGroupResult | SyncGroupResult | LeaveGroupResult | OffsetsResult | DeleteGroupResult
)
GroupEffect = Append[GroupRecord] | Reply[GroupResult]
GroupEffects = Effects[GroupRecord, GroupResult]
GroupAppends = PendingAppends[GroupRecord, GroupResult]


def check_group_id(group_id: str) -> None:
    """Raises `ApiError` for a name that no group can have."""
    if not 0 < len(group_id) <= GROUP_ID_LENGTH_MAX:
        raise ApiError(
            ErrorCode.INVALID_GROUP_ID,
            f"A group id has 1 to {GROUP_ID_LENGTH_MAX} characters; this one has {len(group_id)}",
        )


def check_join(config: GroupConfig, request: JoinGroup) -> None:
    """Checks a join without its group. Raises `ApiError`."""
    least, most = config.session_timeout_min_ms, config.session_timeout_max_ms
    if not least <= request.session_timeout_ms <= most:
        raise ApiError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"A session timeout of {request.session_timeout_ms} ms; this broker allows {least} "
            f"to {most} ms",
        )
    if request.rebalance_timeout_ms > 2**31 - 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"A rebalance timeout of {request.rebalance_timeout_ms} ms; it is at most "
            "2147483647 ms",
        )
    names = [offered.name for offered in request.protocols]
    if len(names) > PROTOCOLS_MAX or len(set(names)) < len(names):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"A member offers at most {PROTOCOLS_MAX} protocols, each once; this one offers "
            f"{len(names)}: {', '.join(names)}",
        )
    if request.instance_id == "":
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "The instance id is empty; give a name, or no instance id",
        )
    texts = (request.member_id, request.instance_id or "", request.client_id)
    for text in (*texts, request.client_host, request.protocol_type, *names):
        if len(text) > NAME_LENGTH_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A name of {len(text)} characters: {text!r}; ids and protocol names have at "
                f"most {NAME_LENGTH_MAX}",
            )
