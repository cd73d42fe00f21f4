"""A request of each group api, about a group and a member of any name."""

from __future__ import annotations

from millrace_protocol.api import ApiKey
from millrace_protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinProtocol,
    LeaveGroupRequest,
    LeavingMember,
    MemberAssignment,
    SyncGroupRequest,
)
from millrace_protocol.messages.group_offsets import (
    CommitPartition,
    GroupPartition,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from millrace_protocol.schema import Message


def group_requests(
    group: str, member: str, *, topic: str = "a", states: tuple[str, ...] = ()
) -> dict[ApiKey, Message]:
    """By api; no group has the member, so most are refused unless its id is empty."""
    return {
        ApiKey.FIND_COORDINATOR: FindCoordinatorRequest((group,)),
        ApiKey.JOIN_GROUP: JoinGroupRequest(
            group, 10_000, 10_000, member, None, "consumer", (JoinProtocol("range", b""),), None
        ),
        ApiKey.SYNC_GROUP: SyncGroupRequest(
            group, 1, member, None, None, None, (MemberAssignment(member, b""),)
        ),
        ApiKey.HEARTBEAT: HeartbeatRequest(group, 1, member, None),
        ApiKey.LEAVE_GROUP: LeaveGroupRequest(group, (LeavingMember(member, None, None),)),
        ApiKey.OFFSET_COMMIT: OffsetCommitRequest(
            group, -1, "", None, (CommitPartition(topic, 0, 1, -1, None),)
        ),
        ApiKey.OFFSET_FETCH: OffsetFetchRequest(group, (GroupPartition(topic, 0),)),
        ApiKey.OFFSET_DELETE: OffsetDeleteRequest(group, (GroupPartition(topic, 0),)),
        ApiKey.LIST_GROUPS: ListGroupsRequest(states),
        ApiKey.DESCRIBE_GROUPS: DescribeGroupsRequest((group,)),
        ApiKey.DELETE_GROUPS: DeleteGroupsRequest((group,)),
    }
