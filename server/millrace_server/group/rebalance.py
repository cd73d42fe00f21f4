"""The rebalance of a group, from one generation to the next.

    members join ──► PreparingRebalance: joins are parked
                     until all members have joined or the rebalance timeout has passed
    the generation begins ──► CompletingRebalance: syncs are parked
                     until the leader's assignment is durable
    every member gets its assignment ──► Stable

Owns the two phases and their timeouts. Members that do not join again are removed at the end of the
first, members that do not sync at the end of the second. Which member may join is `membership`'s.
Source: Kafka's GroupMetadataManager, classic protocol; the initial delay is KIP-134's.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.shard import Token
from millrace_server.group.group import Group, Member
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.records import (
    GroupMetadataRecord,
    GroupMetadataValue,
    encode_record,
)
from millrace_server.group.requests import (
    GroupAppends,
    GroupEffects,
    JoinGroupResult,
    SyncGroup,
    SyncGroupResult,
)
from millrace_server.group.states import GroupState, Step
from millrace_server.group_config import GroupConfig
from millrace_server.loop.deadlines import Deadlines


class Timer(NamedTuple):
    """What a deadline is for."""

    kind: Literal["session", "pending join", "join", "sync", "expiry"]
    group_id: str = ""
    member_id: str = ""


class Rebalance:
    """The rebalances of one shard's groups."""

    __slots__ = ("_appends", "_config", "_quota", "_timers")

    def __init__(
        self,
        config: GroupConfig,
        quota: MemoryQuota,
        appends: GroupAppends,
        timers: Deadlines[Timer],
    ) -> None:
        self._config = config
        self._quota = quota
        self._appends = appends
        self._timers = timers

    def restart_session(self, group: Group, member: Member, effects: GroupEffects) -> None:
        """The member is alive: its session timeout begins anew."""
        self._timers.set(
            Timer("session", group.name, member.member_id),
            effects.moment.now_ms + member.session_timeout_ms,
        )

    def add_member(
        self,
        group: Group,
        member: Member,
        *,
        protocol_type: str,
        token: Token,
        effects: GroupEffects,
    ) -> None:
        """Adds a new member and parks its join; a rebalance begins unless one runs."""
        if group.initial_join_until_ms is not None:
            group.has_new_member = True
        member.is_new = True
        group.add(member, protocol_type)
        group.park_join(member, token)
        self._timers.set(
            Timer("session", group.name, member.member_id),
            effects.moment.now_ms + self._config.new_member_join_timeout_ms,
        )
        self.maybe_prepare(group, effects)

    def rejoin_member(
        self, group: Group, member: Member, *, token: Token, effects: GroupEffects
    ) -> None:
        """Parks another join of a member; a rebalance begins unless one runs."""
        displaced = group.park_join(member, token)
        effects.reply(
            displaced,
            ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A later join of member {member.member_id!r} has replaced this one",
            ),
        )
        self.maybe_prepare(group, effects)

    def remove_member(
        self, group: Group, member_id: str, effects: GroupEffects, error: ApiError
    ) -> None:
        """Removes a member; its parked requests get `error`, and the others rebalance."""
        self._remove(group, member_id, effects, error)
        self.maybe_prepare(group, effects)
        self.maybe_complete_join(group, effects)

    def maybe_prepare(self, group: Group, effects: GroupEffects) -> None:
        """Begins a rebalance if the state allows it."""
        if group.can_take(Step.REBALANCE):
            self.prepare(group, effects)

    def prepare(self, group: Group, effects: GroupEffects) -> None:
        """Begins a rebalance: every member has to join again."""
        self._refuse_syncs(
            group,
            effects,
            ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"Group {group.name!r} began to rebalance before generation {group.generation} "
                "had its assignment; join again",
            ),
        )
        group.pending_sync.clear()
        self._timers.cancel(Timer("sync", group.name))
        was_empty = group.state is GroupState.EMPTY
        group.take(Step.REBALANCE, wall_ms=effects.moment.wall_ms)
        now_ms, delay_ms = effects.moment.now_ms, self._config.initial_rebalance_delay_ms
        if not was_empty:
            self._start_join_timer(group, effects)
            self.maybe_complete_join(group, effects)
        elif delay_ms == 0:
            self._complete_join(group, effects)
        else:
            group.initial_join_until_ms = now_ms + max(group.rebalance_timeout_ms, delay_ms)
            self._timers.set(Timer("join", group.name), now_ms + delay_ms)

    def maybe_complete_join(self, group: Group, effects: GroupEffects) -> None:
        """Completes the join phase if all members have joined."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_join_until_ms is None
            and group.has_all_members_joined
        ):
            self._complete_join(group, effects)

    def on_join_timeout(self, group: Group, effects: GroupEffects) -> None:
        """The initial delay or the rebalance timeout has passed."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        until_ms, now_ms = group.initial_join_until_ms, effects.moment.now_ms
        if until_ms is not None and group.has_new_member and now_ms < until_ms:
            group.has_new_member = False
            due_ms = min(now_ms + self._config.initial_rebalance_delay_ms, until_ms)
            self._timers.set(Timer("join", group.name), due_ms)
            return
        self._complete_join(group, effects)

    def sync(self, group: Group, request: SyncGroup, token: Token, effects: GroupEffects) -> None:
        """A member asks for its assignment; the leader brings all. Raises `ApiError`."""
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        _check_protocol(group, request)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"Group {group.name!r} rebalances again after generation {group.generation}; "
                "join again",
            )
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._timers.cancel(Timer("sync", group.name))
        if group.state is GroupState.STABLE:
            effects.reply(token, assignment_of(group, member))
            self.restart_session(group, member, effects)
            return
        displaced, member.sync_token = member.sync_token, token
        effects.reply(
            displaced,
            ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A later sync of member {member.member_id!r} has replaced this one",
            ),
        )
        if group.is_leader(member.member_id) and group.storing_generation != group.generation:
            self._store_assignment(group, request, effects)

    def on_sync_timeout(self, group: Group, effects: GroupEffects) -> None:
        """The rebalance timeout has passed in the sync phase: members that did not sync go."""
        if not group.pending_sync:
            return
        error = ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"The member did not sync in generation {group.generation} in time; join again",
        )
        for member_id in [each for each in group.members if each in group.pending_sync]:
            self._remove(group, member_id, effects, error)
        self.maybe_prepare(group, effects)

    def cancel_timers(self, group: Group) -> None:
        """Cancels every timer of a group that is removed."""
        for member_id in group.members:
            self._timers.cancel(Timer("session", group.name, member_id))
        self._timers.cancel(Timer("join", group.name))
        self._timers.cancel(Timer("sync", group.name))

    def _complete_join(self, group: Group, effects: GroupEffects) -> None:
        """Ends the join phase with the members that have joined, and all static members."""
        late = ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            "The member did not join again within the rebalance timeout of group "
            f"{group.name!r}; join again without a member id",
        )
        for member in list(group.members.values()):
            if member.join_token is None and not member.is_static:
                self._remove(group, member.member_id, effects, late)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has joined: their sessions decide.
            group.initial_join_until_ms = None
            self._start_join_timer(group, effects)
            return
        self._timers.cancel(Timer("join", group.name))
        group.initial_join_until_ms = None
        group.has_new_member = False
        group.init_next_generation(wall_ms=effects.moment.wall_ms)
        if group.members:
            self._reply_to_joins(group, effects)
        else:
            stored = group.stored({}, wall_ms=effects.moment.wall_ms)
            self._appends.start(effects, [GroupMetadataRecord(group.name, stored)])

    def _reply_to_joins(self, group: Group, effects: GroupEffects) -> None:
        for member in group.members.values():
            effects.reply(group.take_join(member), generation_of(group, member))
            member.is_new = False
            group.pending_sync.add(member.member_id)
            self.restart_session(group, member, effects)
        self._timers.set(
            Timer("sync", group.name), effects.moment.now_ms + max(1, group.rebalance_timeout_ms)
        )

    def _start_join_timer(self, group: Group, effects: GroupEffects) -> None:
        self._timers.set(
            Timer("join", group.name), effects.moment.now_ms + max(1, group.rebalance_timeout_ms)
        )

    def _store_assignment(self, group: Group, request: SyncGroup, effects: GroupEffects) -> None:
        """Appends the generation with its assignment; syncs get replies when it is durable."""
        assignments = {
            member_id: assignment
            for member_id, assignment in request.assignments
            if member_id in group.members
        }
        stored = group.stored(assignments, wall_ms=effects.moment.wall_ms)
        try:
            self._check_assignment_size(group, stored, assignments)
        except ApiError as error:
            self._give_up_assignment(
                group, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message), effects
            )
            return
        group.storing_generation = group.generation
        self._appends.start(
            effects,
            [GroupMetadataRecord(group.name, stored)],
            partial(self._on_assignment_ended, group, group.generation, assignments),
        )

    def _check_assignment_size(
        self, group: Group, stored: GroupMetadataValue, assignments: dict[str, bytes]
    ) -> None:
        size = len(encode_record(GroupMetadataRecord(group.name, stored))[1] or b"")
        most = self._config.group_metadata_bytes_max
        if size > most:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The record of group {group.name!r} with its assignment has {size} bytes of at "
                f"most {most}; read fewer topics in one group, or have fewer members",
            )
        self._quota.check(group.growth_by(assignments), self._quota.owner_of(group.name))

    def _on_assignment_ended(
        self,
        group: Group,
        generation: int,
        assignments: dict[str, bytes],
        error: ApiError | None,
        effects: GroupEffects,
    ) -> None:
        """The assignment is durable, or cannot be written; a newer generation ignores it."""
        if group.storing_generation == generation:
            group.storing_generation = None
        if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
            return
        if error is not None:
            self._give_up_assignment(group, group_write_error(error), effects)
            return
        for member in group.members.values():
            group.assign(member, assignments.get(member.member_id, b""))
            if member.sync_token is not None:
                token, member.sync_token = member.sync_token, None
                effects.reply(token, assignment_of(group, member))
                self.restart_session(group, member, effects)
        group.take(Step.ASSIGNED, wall_ms=effects.moment.wall_ms)

    def _give_up_assignment(self, group: Group, error: ApiError, effects: GroupEffects) -> None:
        """The generation gets no assignment: syncs get `error`, and all members join again."""
        self._refuse_syncs(group, effects, error)
        self.prepare(group, effects)

    def _remove(self, group: Group, member_id: str, effects: GroupEffects, error: ApiError) -> None:
        self._timers.cancel(Timer("session", group.name, member_id))
        member = group.remove(member_id)
        if member is not None:
            effects.reply(member.join_token, error)
            effects.reply(member.sync_token, error)

    def _refuse_syncs(self, group: Group, effects: GroupEffects, error: ApiError) -> None:
        for member in group.members.values():
            if member.sync_token is not None:
                token, member.sync_token = member.sync_token, None
                effects.reply(token, error)
                self.restart_session(group, member, effects)


def generation_of(group: Group, member: Member) -> JoinGroupResult:
    """The current generation, for a join of the member."""
    return JoinGroupResult(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol=group.protocol or "",
        leader_id=group.leader_id or "",
        members=group.joined_members() if group.is_leader(member.member_id) else (),
    )


def assignment_of(group: Group, member: Member) -> SyncGroupResult:
    """The member's assignment, for a sync of it."""
    return SyncGroupResult(group.protocol_type or "", group.protocol or "", member.assignment)


def group_write_error(error: ApiError) -> ApiError:
    """The error of a request whose group record could not be written."""
    code = error.code
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return ApiError(code, f"The group's record could not be written: {error.message}")


def _check_protocol(group: Group, request: SyncGroup) -> None:
    for noun, asked, current in (
        ("protocol type", request.protocol_type, group.protocol_type),
        ("protocol", request.protocol, group.protocol),
    ):
        if asked is not None and asked != current:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Generation {group.generation} of group {group.name!r} has {noun} {current!r}, "
                f"not {asked!r}; join again",
            )
