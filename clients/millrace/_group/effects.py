"""The effects of `membership`: requests, hand-overs and events.

The shell carries each out and returns its outcome together with the effect, so that the membership
recognizes a late response. Effects compare by identity: two equal joins are two joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from millrace.errors import MillraceError
from millrace.events import EventKind
from millrace.records import TopicPartition
from millrace_protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

Partitions: TypeAlias = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """Send it on a connection where it may wait alone; ends in `on_joined`."""

    request: JoinGroupRequest


@dataclass(frozen=True, slots=True, eq=False)
class RefreshMetadata:
    """Ask for the partition counts of these topics; ends in `on_refreshed`.

    `with_assignments`: ask also for the partitions that the group has assigned (DescribeGroups).
    """

    topics: frozenset[str]
    with_assignments: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Sync:
    """As `Join`; ends in `on_synced`."""

    request: SyncGroupRequest


@dataclass(frozen=True, slots=True, eq=False)
class Heartbeat:
    """Ends in `on_heard`."""

    request: HeartbeatRequest


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """Ends in `on_left`."""

    request: LeaveGroupRequest


@dataclass(frozen=True, slots=True, eq=False)
class Revoke:
    """Stop reading `partitions`; ends in `on_handed_over`, after which other members may read them.

    With `lost` other members may read them already, and no commit for them succeeds.
    """

    partitions: Partitions
    lost: MillraceError | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """Read `added` from the group's committed offsets, beside the partitions read already.

    `assigned` are all partitions. Ends in `on_handed_over`.
    """

    assigned: Partitions
    added: Partitions


@dataclass(frozen=True, slots=True)
class Emit:
    """Emit an event."""

    kind: EventKind
    sentence: str
    error: MillraceError | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """The member has left the group on its own wish."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The membership has failed for good; `lost` are the partitions that the member had."""

    error: MillraceError
    lost: Partitions


Call: TypeAlias = Join | RefreshMetadata | Sync | Leave
HandOver: TypeAlias = Revoke | Assign
Effect: TypeAlias = Call | Heartbeat | HandOver | Emit | Left | Fail
