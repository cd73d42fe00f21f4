"""What is asked of a coordinator, as plain values of no dialect.

Owns the shapes only; a dialect fills them, `coordinator` judges them. A member id of "" means that
the caller has none, a generation of -1 that it is no member. Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NO_MEMBER = ""
NO_GENERATION = -1


class Moment(NamedTuple):
    """When an event happens, on both of a host's clocks.

    `now_ms` never goes back and decides about timeouts; `wall_ms` is for people, may jump, goes
    into records and decides about retention.
    """

    now_ms: int
    wall_ms: int


class OfferedProtocol(NamedTuple):
    """An assignor that a member can work with, and what the member tells the leader through it."""

    name: str
    metadata: bytes


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
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
    reason: str = ""
    """For the shell's log; so is that of `LeavingMember`."""
    requires_known_member_id: bool = True
    """Whether a newcomer is first told its id (KIP-394); False for clients that do not know how."""
    can_skip_assignment: bool = True
    """Whether a static leader that restarts understands `Joined.skip_assignment` (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A member wants its assignment; the leader brings everybody's."""

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
    """Who goes: by member id, or for a static member by instance id with an empty member id."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Members leave, or are made to."""

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
class Commit:
    """Offsets to remember; by a member, or by anybody while the group has no members."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    instance_id: str | None = None
