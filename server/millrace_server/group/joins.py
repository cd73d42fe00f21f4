"""Joins: who may be in a group, under which id, and whether that means a rebalance.

Owns the rules of joining, for newcomers, members who come again, and static members that restart
(KIP-345, KIP-394, KIP-814). Refuses to know how a rebalance goes; that is `rebalances`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.appends import AppendsInFlight, StaticRestart
from millrace_server.group.config import NAME_LENGTH_MAX, PROTOCOLS_MAX, GroupConfig
from millrace_server.group.effects import Joined, Refusal, Token, Turn
from millrace_server.group.group import Group
from millrace_server.group.liveness import Liveness
from millrace_server.group.member import Member, metadata_of
from millrace_server.group.rebalances import Rebalances, generation_of
from millrace_server.group.records import GroupWritten
from millrace_server.group.requests import NO_MEMBER, Join, OfferedProtocol
from millrace_server.group.room import MEMBER_BYTES, Room
from millrace_server.group.states import GroupState
from millrace_server.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics


class Joins:
    """The joins of one coordinator's groups; `make_id` gives what makes a member id unique."""

    __slots__ = ("_appends", "_config", "_liveness", "_make_id", "_rebalances", "_room")

    def __init__(
        self,
        config: GroupConfig,
        room: Room,
        rebalances: Rebalances,
        liveness: Liveness,
        appends: AppendsInFlight,
        make_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._room = room
        self._rebalances = rebalances
        self._liveness = liveness
        self._appends = appends
        self._make_id = make_id

    def check(self, request: Join) -> None:
        """What is wrong with a join whatever the group is like. Raises `ApiError`."""
        least, most = self._config.session_timeout_min_ms, self._config.session_timeout_max_ms
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
                "An instance id is a name, or not there; this one is empty",
            )
        texts = (request.member_id, request.instance_id or "", request.client_id)
        for text in (*texts, request.client_host, request.protocol_type, *names):
            if len(text) > NAME_LENGTH_MAX:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"A name of {len(text)} characters: {text!r}; ids and protocol names have at "
                    f"most {NAME_LENGTH_MAX}",
                )

    def join(self, group: Group, request: Join, token: Token, turn: Turn) -> None:
        """A checked join meets its group. Raises `ApiError`."""
        if group.state is GroupState.DEAD:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"Group {group.name!r} is being deleted; join again in a moment",
            )
        self._check_size(group, request, turn)
        if not group.supports(request.protocol_type, request.protocols):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, _no_common(group, request))
        self._check_metadata(group, request)
        if request.member_id != NO_MEMBER:
            self._join_again(group, request, token, turn)
        elif request.instance_id is None:
            self._join_anew(group, request, token, turn)
        elif (old_id := group.static_ids.get(request.instance_id)) is not None:
            self._restart_static(group, old_id, request, token, turn)
        else:
            self._admit(group, self._new_id(request.instance_id), request, token, turn)
        self._rebalances.try_complete(group, turn)

    def _join_anew(self, group: Group, request: Join, token: Token, turn: Turn) -> None:
        member_id = self._new_id(request.client_id)
        if not request.requires_known_member_id:
            self._admit(group, member_id, request, token, turn)
            return
        self._liveness.expect(group, member_id, request.session_timeout_ms, turn)
        turn.reply(
            token,
            Refusal.saying(
                ErrorCode.MEMBER_ID_REQUIRED,
                f"Join group {group.name!r} again as member {member_id!r}",
                member_id,
            ),
        )

    def _join_again(self, group: Group, request: Join, token: Token, turn: Turn) -> None:
        if request.member_id in group.pending:
            if request.instance_id is not None:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Member id {request.member_id!r} was given to a member without an instance "
                    f"id; to join as instance {request.instance_id!r} begin without a member id",
                )
            self._liveness.arrived(group, request.member_id)
            self._admit(group, request.member_id, request, token, turn)
            return
        member = group.check_member(request.member_id, request.instance_id)
        unchanged = member.protocols == request.protocols
        if (group.state is GroupState.COMPLETING_REBALANCE and unchanged) or (
            group.state is GroupState.STABLE and unchanged and not group.is_leader(member.member_id)
        ):
            # It missed the answer to its join, or lost touch for a moment: the generation holds.
            turn.reply(token, generation_of(group, member))
            return
        self._update(group, member, request)
        self._rebalances.rejoin(group, member, token=token, turn=turn)

    def _restart_static(
        self, group: Group, old_id: str, request: Join, token: Token, turn: Turn
    ) -> None:
        """A static member is back without its member id: its old id is fenced from here on."""
        member = group.members[old_id]
        was_leader = group.leader_id or ""
        before = (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms)
        self._liveness.fence(group, member, turn)
        group.replace(old_id, self._new_id(request.instance_id or ""))
        self._update(group, member, request)
        self._rebalances.touch(group, member, turn)
        if group.state is not GroupState.STABLE or _says_other(group, member, before[0]):
            self._rebalances.rejoin(group, member, token=token, turn=turn)
            return
        joined = _as_it_was(group, member, request, was_leader)
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        stored = group.stored(assignments, wall_ms=group.state_wall_ms)
        restart = StaticRestart(
            group.name, group.generation, token, joined, old_id, member.member_id, before
        )
        self._appends.start(turn, restart, [GroupWritten(group.name, stored)])

    def on_restart_stored(self, done: StaticRestart, turn: Turn) -> None:
        """The new id is durable. If the group has gone on meanwhile, the next sync will say so."""
        turn.reply(done.token, done.joined)

    def on_restart_not_stored(
        self, done: StaticRestart, group: Group | None, refusal: Refusal, turn: Turn
    ) -> None:
        """The new id could not be written: the old one holds again, if nothing else happened."""
        turn.reply(done.token, refusal)
        if (
            group is None
            or group.state is not GroupState.STABLE
            or group.generation != done.generation
            or done.new_id not in group.members
        ):
            return
        self._liveness.fence(group, group.members[done.new_id], turn)
        member = group.replace(done.new_id, done.old_id)
        protocols, session_timeout_ms, rebalance_timeout_ms = done.before
        group.update(
            member,
            protocols,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        self._rebalances.touch(group, member, turn)

    def _admit(self, group: Group, member_id: str, request: Join, token: Token, turn: Turn) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            protocols=request.protocols,
        )
        self._rebalances.add(
            group, member, protocol_type=request.protocol_type, token=token, turn=turn
        )

    def _update(self, group: Group, member: Member, request: Join) -> None:
        group.update(
            member,
            request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
        )

    def _check_size(self, group: Group, request: Join, turn: Turn) -> None:
        """Raises `ApiError` when the group is full; a member over the limit goes."""
        most = self._config.group_size_max
        member = group.members.get(_place_of(group, request))
        if group.state is GroupState.PREPARING_REBALANCE:
            # Counting who has joined sends the last to rejoin away when a limit was lowered.
            fits = member is not None and member.join_token is not None
            fits = fits or group.awaiting_join < most
        else:
            fits = member is not None or len(group.members) < most
        if fits:
            return
        refusal = Refusal.saying(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"Group {group.name!r} has {most} members, which is all that group.max.size allows; "
            "use another group or raise it",
        )
        self._liveness.arrived(group, request.member_id)
        if member is not None:
            self._rebalances.remove(group, member.member_id, turn, refusal)
        self._rebalances.try_complete(group, turn)
        raise ApiError(refusal.code, refusal.message)

    def _check_metadata(self, group: Group, request: Join) -> None:
        most = self._config.group_metadata_bytes_max
        size = sum(len(offered.metadata) for offered in request.protocols)
        member = group.members.get(_place_of(group, request))
        before = member.metadata_bytes if member else 0
        others = group.metadata_bytes - before
        if size + others > most:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"This member brings {size} bytes of metadata and the others of group "
                f"{group.name!r} have {others}; all together may have {most}; subscribe to fewer "
                "topics or use more groups",
            )
        self._room.check(size - before if member else size + MEMBER_BYTES)

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-{self._make_id()}"


def _place_of(group: Group, request: Join) -> str:
    """The member id whose place the join would take; that of nobody for a newcomer."""
    if request.member_id == NO_MEMBER and request.instance_id is not None:
        return group.static_ids.get(request.instance_id, NO_MEMBER)
    return request.member_id


def _rebalance_timeout_ms(request: Join) -> int:
    timeout_ms = request.rebalance_timeout_ms
    return timeout_ms if timeout_ms > 0 else request.session_timeout_ms


def _says_other(group: Group, member: Member, before: tuple[OfferedProtocol, ...]) -> bool:
    """Whether a static member that restarts says something else than its assignment rests on.

    For consumers that is the topics they read. The rest of a subscription, such as what they
    owned, is never the same after a restart, and comparing it would rebalance every time.
    """
    if group.protocol is None or group.select_protocol() != group.protocol:
        return True
    says, said = member.metadata(group.protocol), metadata_of(before, group.protocol)
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or says == said:
        return False
    topics = subscribed_topics(says)
    return topics is None or topics != subscribed_topics(said)


def _as_it_was(group: Group, member: Member, request: Join, was_leader: str) -> Joined:
    """The stable generation, to a static member that goes on in it under a new id.

    A leader that cannot skip the assignment is told that its old id leads, which is nobody's any
    more: it must not compute an assignment that nobody waits for.
    """
    joined = generation_of(group, member)
    if not group.is_leader(member.member_id):
        return joined
    if request.can_skip_assignment:
        return replace(joined, skip_assignment=True)
    return replace(joined, leader_id=was_leader, members=())


def _no_common(group: Group, request: Join) -> str:
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
