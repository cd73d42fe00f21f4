"""What a member of a group has to have done: the effects of `membership`.

Each is a value that the shell carries out; its outcome goes back into the membership together with
the effect it belongs to, which is how an answer that comes too late is known. They compare by
identity: two joins that say the same are two joins.
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
    """Send it where it may wait without holding anything up; ends in `on_joined`."""

    request: JoinGroupRequest


@dataclass(frozen=True, slots=True, eq=False)
class RefreshMetadata:
    """Find out how many partitions these topics have; ends in `on_refreshed`.

    `with_assignments`: and which of them the group has assigned, as DescribeGroups says.
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

    With `lost` they may be read by others already, and nothing can be committed for them any more.
    """

    partitions: Partitions
    lost: MillraceError | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """Read `added` from the group's committed offsets, beside what is read already.

    `assigned` is all together. Ends in `on_handed_over`.
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
    """The member is out of the group, as it wanted."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The member cannot go on; `lost` are the partitions that it had."""

    error: MillraceError
    lost: Partitions


Call: TypeAlias = Join | RefreshMetadata | Sync | Leave
HandOver: TypeAlias = Revoke | Assign
Effect: TypeAlias = Call | Heartbeat | HandOver | Emit | Left | Fail
