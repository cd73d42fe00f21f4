"""A member's identity in its group, and the requests it makes under it.

Owns the member id, the generation, and the requests that are made of them. Decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace._group.effects import Heartbeat, Join, Leave, Partitions, Sync
from millrace.assignors import Assignor, Subscription
from millrace.config import ConsumerConfig
from millrace.errors import InconsistentProtocol
from millrace_protocol.consumer_protocol import NO_GENERATION, PROTOCOL_TYPE
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinProtocol,
    LeaveGroupRequest,
    LeavingMember,
    MemberAssignment,
    SyncGroupRequest,
)

NO_MEMBER = ""
_REASON_LENGTH_MAX = 255


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The settings of a membership; `instance_id` makes it a static one."""

    group: str
    assignors: tuple[Assignor, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int
    instance_id: str | None = None
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000

    @classmethod
    def of(
        cls,
        config: ConsumerConfig,
        group: str,
        instance_id: str | None,
        assignors: tuple[Assignor, ...],
    ) -> MemberConfig:
        """The settings of a consumer that matter to its membership."""
        return cls(
            group,
            assignors,
            config.session_timeout_ms,
            config.rebalance_timeout_ms,
            config.heartbeat_interval_ms,
            instance_id,
            config.retry_backoff_ms,
            config.retry_backoff_max_ms,
        )

    def assignor(self, name: str | None) -> Assignor:
        """The member's assignor of this name. Raises `InconsistentProtocol` for another name."""
        for assignor in self.assignors:
            if assignor.name == name:
                return assignor
        raise InconsistentProtocol(
            f"the coordinator chose {name!r}, which this member did not offer",
            code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        )


class MemberIdentity:
    """The identity of a member now; `member_id` is empty and `generation` -1 while it has none."""

    def __init__(self, config: MemberConfig) -> None:
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION
        self.protocol = ""
        self.last_assigned: Partitions = frozenset()
        """The last assignment, which the member may have lost since."""
        self.last_generation = NO_GENERATION
        self._config = config

    @property
    def is_kept(self) -> bool:
        """Whether the group keeps the identity of a member that leaves, because it is static."""
        return self._config.instance_id is not None

    def forget(self) -> None:
        """The member has no identity any more; what it was assigned last is still a preference."""
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION

    def join(self, topics: frozenset[str], held: Partitions, reason: str) -> Join:
        wanted = tuple(sorted(topics))
        last = tuple(sorted(self.last_assigned))
        config = self._config
        protocols = tuple(
            JoinProtocol(
                assignor.name,
                Subscription(
                    wanted,
                    owned=tuple(sorted(held)),
                    generation=self.last_generation if held else NO_GENERATION,
                    user_data=assignor.user_data(
                        wanted, assigned=last, generation=self.last_generation
                    ),
                ).encode(),
            )
            for assignor in config.assignors
        )
        return Join(
            JoinGroupRequest(
                config.group,
                config.session_timeout_ms,
                config.rebalance_timeout_ms,
                self.member_id,
                config.instance_id,
                PROTOCOL_TYPE,
                protocols,
                reason[:_REASON_LENGTH_MAX],
            )
        )

    def sync(self, assignments: tuple[MemberAssignment, ...]) -> Sync:
        config = self._config
        return Sync(
            SyncGroupRequest(
                config.group,
                self.generation,
                self.member_id,
                config.instance_id,
                PROTOCOL_TYPE,
                self.protocol,
                assignments,
            )
        )

    def heartbeat(self) -> Heartbeat:
        config = self._config
        return Heartbeat(
            HeartbeatRequest(config.group, self.generation, self.member_id, config.instance_id)
        )

    def leave(self, reason: str) -> Leave:
        leaving = LeavingMember(self.member_id, None, reason[:_REASON_LENGTH_MAX])
        return Leave(LeaveGroupRequest(self._config.group, (leaving,)))

    def speaks_for(self, heartbeat: Heartbeat) -> bool:
        """Whether the heartbeat was sent under this identity and not under an earlier one."""
        request = heartbeat.request
        return (request.generation, request.member_id) == (self.generation, self.member_id)
