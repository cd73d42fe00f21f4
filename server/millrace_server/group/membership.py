"""The members of groups: join, heartbeat, leave, and the ids that they do it under.

Owns the rules for new members, for members that join again, and for static members that restart
(KIP-345, KIP-394, KIP-814); session timeouts; and the pending ids, which were given to new members
that have not joined with them yet. How a rebalance proceeds is `rebalance`'s. Source: Kafka's
GroupMetadataManager, classic protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from millrace_protocol.consumer_protocol import PROTOCOL_TYPE
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.shard import Token
from millrace_server.group.group import (
    MEMBER_BYTES,
    Group,
    Member,
    metadata_of,
    subscribed_topics,
)
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.pending_members import PendingMember, PendingMembers
from millrace_server.group.rebalance import Rebalance, Timer, generation_of, group_write_error
from millrace_server.group.records import GroupMetadataRecord
from millrace_server.group.requests import (
    NO_MEMBER,
    GroupAppends,
    GroupEffects,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeavingMember,
    MemberIdRequired,
    OfferedProtocol,
)
from millrace_server.group.states import GroupState
from millrace_server.group_config import GroupConfig
from millrace_server.loop.deadlines import Deadlines


@dataclass(frozen=True, slots=True)
class _StaticRestart:
    """A static member has a new id, so far only in memory; the rest is for going back to `old_id`.

    `token` waits for `result` until the new id is durable.
    """

    group: Group
    generation: int
    token: Token
    result: JoinGroupResult
    old_id: str
    new_id: str
    protocols: tuple[OfferedProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int


class Membership:
    """The members of one shard's groups; `make_id` gives what makes a member id unique."""

    __slots__ = (
        "_appends",
        "_config",
        "_make_id",
        "_pending",
        "_quota",
        "_rebalance",
        "_timers",
        "maybe_idle",
    )

    def __init__(
        self,
        config: GroupConfig,
        quota: MemoryQuota,
        rebalance: Rebalance,
        appends: GroupAppends,
        timers: Deadlines[Timer],
        make_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._quota = quota
        self._rebalance = rebalance
        self._appends = appends
        self._timers = timers
        self._make_id = make_id
        self._pending = PendingMembers(config, quota)
        self.maybe_idle: list[str] = []
        """Groups that may have nothing left to keep; `registry` removes those."""

    def join(self, group: Group, request: JoinGroup, token: Token, effects: GroupEffects) -> None:
        """Takes a join that `requests.check_join` has passed. Raises `ApiError`."""
        if group.state is GroupState.DEAD:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"Group {group.name!r} is being deleted; join again in a moment",
            )
        self._check_group_size(group, request, effects)
        if not group.supports_protocols(request.protocol_type, request.protocols):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, _no_common(group, request))
        self._check_metadata_size(group, request)
        if request.member_id != NO_MEMBER:
            self._join_known(group, request, token, effects)
        elif request.instance_id is None:
            self._join_new(group, request, token, effects)
        elif (old_id := group.static_members.get(request.instance_id)) is not None:
            self._restart_static(group, old_id, request, token, effects)
        else:
            self._add(group, self._new_id(request.instance_id), request, token, effects)
        self._rebalance.maybe_complete_join(group, effects)

    def heartbeat(self, group: Group, request: Heartbeat, effects: GroupEffects) -> None:
        """A member is alive. Raises `ApiError` when it has to act."""
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        self._rebalance.restart_session(group, member, effects)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"Group {group.name!r} rebalances after generation {group.generation}: finish "
                "the records at hand and join again",
            )

    def leave(self, group: Group, leaving: LeavingMember, effects: GroupEffects) -> None:
        """A member leaves. Raises `ApiError`."""
        member_id, instance_id = leaving.member_id, leaving.instance_id
        if member_id == NO_MEMBER:
            current = group.static_members.get(instance_id or "")
            if current is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Group {group.name!r} has no instance {instance_id!r} that could leave",
                )
            member_id = current
        elif member_id in group.pending_join:
            self.on_pending_timeout(group, member_id, effects)
            return
        group.check_member(member_id, instance_id)
        error = ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id!r} has left group {group.name!r}"
        )
        self._rebalance.remove_member(group, member_id, effects, error)

    def on_session_timeout(self, group: Group, member_id: str, effects: GroupEffects) -> None:
        """A member has sent nothing for its session timeout."""
        member = group.members.get(member_id)
        if member is None:
            return
        is_parked = member.join_token is not None or member.sync_token is not None
        if is_parked and not member.is_new:
            # It cannot heartbeat while its request is parked; its session begins with the reply.
            return
        error = ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Group {group.name!r} has waited too long for its other members; join again",
        )
        self._rebalance.remove_member(group, member_id, effects, error)

    def on_pending_timeout(self, group: Group, member_id: str, effects: GroupEffects) -> None:
        """A new member has not joined with the id that it was given."""
        self._remove_pending(group, member_id)
        self._rebalance.maybe_complete_join(group, effects)
        self.maybe_idle.append(group.name)

    def drop_oldest_pending(self, effects: GroupEffects) -> bool:
        """Drops the id that is pending longest; False when there is none."""
        return self._drop(self._pending.oldest(), effects)

    def drop_oldest_pending_of(self, principal: str | None, effects: GroupEffects) -> bool:
        """The same of those that a principal has asked for."""
        return self._drop(self._pending.oldest_of(principal), effects)

    def cancel_timers(self, group: Group) -> None:
        """Cancels every timer of a group that is removed, and drops its pending ids."""
        for member_id in list(group.pending_join):
            self._remove_pending(group, member_id)
        self._rebalance.cancel_timers(group)

    def _join_new(
        self, group: Group, request: JoinGroup, token: Token, effects: GroupEffects
    ) -> None:
        member_id = self._new_id(request.client_id)
        if not request.requires_known_member_id:
            self._add(group, member_id, request, token, effects)
            return
        while self._drop(self._pending.in_the_way_of(request), effects):
            pass
        timer = self._pending.add(group, member_id, request.principal)
        self._timers.set(timer, effects.moment.now_ms + request.session_timeout_ms)
        effects.reply(token, MemberIdRequired(group.name, member_id))

    def _join_known(
        self, group: Group, request: JoinGroup, token: Token, effects: GroupEffects
    ) -> None:
        if request.member_id in group.pending_join:
            if request.instance_id is not None:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Member id {request.member_id!r} was given to a member without an instance "
                    f"id; to join as instance {request.instance_id!r} start without a member id",
                )
            self._remove_pending(group, request.member_id)
            self._add(group, request.member_id, request, token, effects)
            return
        member = group.check_member(request.member_id, request.instance_id)
        unchanged = member.protocols == request.protocols
        if (group.state is GroupState.COMPLETING_REBALANCE and unchanged) or (
            group.state is GroupState.STABLE and unchanged and not group.is_leader(member.member_id)
        ):
            # The response to its join was lost: the generation holds.
            effects.reply(token, generation_of(group, member))
            return
        _update(group, member, request)
        self._rebalance.rejoin_member(group, member, token=token, effects=effects)

    def _restart_static(
        self, group: Group, old_id: str, request: JoinGroup, token: Token, effects: GroupEffects
    ) -> None:
        """A static member joins without its member id, and gets a new one; the old is fenced."""
        member = group.members[old_id]
        old_leader = group.leader_id or ""
        protocols, session_timeout_ms = member.protocols, member.session_timeout_ms
        rebalance_timeout_ms = member.rebalance_timeout_ms
        self._fence(group, member, effects)
        group.replace_static_member(old_id, self._new_id(request.instance_id or ""))
        _update(group, member, request)
        self._rebalance.restart_session(group, member, effects)
        if group.state is not GroupState.STABLE or _needs_rebalance(group, member, protocols):
            self._rebalance.rejoin_member(group, member, token=token, effects=effects)
            return
        restart = _StaticRestart(
            group=group,
            generation=group.generation,
            token=token,
            result=_same_generation(group, member, request, old_leader),
            old_id=old_id,
            new_id=member.member_id,
            protocols=protocols,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        stored = group.stored(assignments, wall_ms=group.state_wall_ms)
        self._appends.start(
            effects,
            [GroupMetadataRecord(group.name, stored)],
            partial(self._on_restart_ended, restart),
        )

    def _on_restart_ended(
        self, restart: _StaticRestart, error: ApiError | None, effects: GroupEffects
    ) -> None:
        """The new id is durable, or cannot be written: then the old one is valid again.

        If the group has rebalanced meanwhile, the member learns that when it syncs.
        """
        if error is None:
            effects.reply(restart.token, restart.result)
            return
        effects.reply(restart.token, group_write_error(error))
        group = restart.group
        if (
            group.state is not GroupState.STABLE
            or group.generation != restart.generation
            or restart.new_id not in group.members
        ):
            return
        self._fence(group, group.members[restart.new_id], effects)
        member = group.replace_static_member(restart.new_id, restart.old_id)
        group.update(
            member,
            restart.protocols,
            session_timeout_ms=restart.session_timeout_ms,
            rebalance_timeout_ms=restart.rebalance_timeout_ms,
        )
        self._rebalance.restart_session(group, member, effects)

    def _fence(self, group: Group, member: Member, effects: GroupEffects) -> None:
        """A static member's id is about to be replaced: its parked requests are refused."""
        error = ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Another process has joined group {group.name!r} as instance {member.instance_id!r}; "
            "give each process its own instance id",
        )
        self._timers.cancel(Timer("session", group.name, member.member_id))
        effects.reply(group.take_join(member), error)
        token, member.sync_token = member.sync_token, None
        effects.reply(token, error)

    def _add(
        self,
        group: Group,
        member_id: str,
        request: JoinGroup,
        token: Token,
        effects: GroupEffects,
    ) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            protocols=request.protocols,
        )
        self._rebalance.add_member(
            group, member, protocol_type=request.protocol_type, token=token, effects=effects
        )

    def _drop(self, pending: PendingMember | None, effects: GroupEffects) -> bool:
        if pending is None:
            return False
        self.on_pending_timeout(pending.group, pending.member_id, effects)
        return True

    def _remove_pending(self, group: Group, member_id: str) -> None:
        timer = self._pending.remove(group, member_id)
        if timer is not None:
            self._timers.cancel(timer)

    def _check_group_size(self, group: Group, request: JoinGroup, effects: GroupEffects) -> None:
        """Raises `ApiError` when the group is full; a member above the limit is removed."""
        most = self._config.group_size_max
        member = group.members.get(_current_id(group, request))
        if group.state is GroupState.PREPARING_REBALANCE:
            # Counting those that have joined removes the last to rejoin when a limit was lowered.
            fits = member is not None and member.join_token is not None
            fits = fits or group.awaiting_join < most
        else:
            fits = member is not None or len(group.members) < most
        if fits:
            return
        error = ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"Group {group.name!r} has {most} members, which is all that group.max.size allows; "
            "use another group or raise it",
        )
        self._remove_pending(group, request.member_id)
        if member is not None:
            self._rebalance.remove_member(group, member.member_id, effects, error)
        self._rebalance.maybe_complete_join(group, effects)
        raise error

    def _check_metadata_size(self, group: Group, request: JoinGroup) -> None:
        most = self._config.group_metadata_bytes_max
        size = sum(len(offered.metadata) for offered in request.protocols)
        member = group.members.get(_current_id(group, request))
        before = member.metadata_bytes if member else 0
        others = group.metadata_bytes - before
        if size + others > most:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"This member brings {size} bytes of metadata and the others of group "
                f"{group.name!r} have {others}; all together may have {most}; subscribe to fewer "
                "topics or use more groups",
            )
        owner = self._quota.owner_of(group.name)
        self._quota.check(size - before if member else size + MEMBER_BYTES, owner)

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-{self._make_id()}"


def _update(group: Group, member: Member, request: JoinGroup) -> None:
    group.update(
        member,
        request.protocols,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
    )


def _current_id(group: Group, request: JoinGroup) -> str:
    """The id of the member that the join is from; `NO_MEMBER` for a new member."""
    if request.member_id == NO_MEMBER and request.instance_id is not None:
        return group.static_members.get(request.instance_id, NO_MEMBER)
    return request.member_id


def _rebalance_timeout_ms(request: JoinGroup) -> int:
    timeout_ms = request.rebalance_timeout_ms
    return timeout_ms if timeout_ms > 0 else request.session_timeout_ms


def _needs_rebalance(group: Group, member: Member, before: tuple[OfferedProtocol, ...]) -> bool:
    """Whether a static member that restarts differs in what its assignment depends on.

    For consumers these are the topics that they read. The rest of a subscription, such as the owned
    partitions, differs after every restart, and comparing it would rebalance each time.
    """
    if group.protocol is None or group.select_protocol() != group.protocol:
        return True
    now, then = member.metadata(group.protocol), metadata_of(before, group.protocol)
    if group.protocol_type != PROTOCOL_TYPE or now == then:
        return False
    topics = subscribed_topics(now)
    return topics is None or topics != subscribed_topics(then)


def _same_generation(
    group: Group, member: Member, request: JoinGroup, old_leader: str
) -> JoinGroupResult:
    """The stable generation, for a static member that continues in it under a new id.

    A leader that cannot skip the assignment gets its old id as the leader's, which no member has:
    it must not compute an assignment that no member waits for.
    """
    joined = generation_of(group, member)
    if not group.is_leader(member.member_id):
        return joined
    if request.can_skip_assignment:
        return replace(joined, skip_assignment=True)
    return replace(joined, leader_id=old_leader, members=())


def _no_common(group: Group, request: JoinGroup) -> str:
    offered = ", ".join(repr(each.name) for each in request.protocols) or "no protocol"
    if group.state is GroupState.EMPTY:
        return f"A member brings a protocol type and a protocol; this one brings {offered}"
    if request.protocol_type != group.protocol_type:
        return (
            f"Group {group.name!r} has protocol type {group.protocol_type!r} and this member "
            f"{request.protocol_type!r}; use another group"
        )
    return (
        f"This member offers {offered}, none of which every member of group {group.name!r} "
        "supports; configure an assignor that they have in common"
    )
