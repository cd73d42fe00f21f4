"""Liveness: who is still there, who leaves, and whom nobody has heard of for too long.

Owns sessions, heartbeats, leaving, and the ids of newcomers that were told to come back (KIP-394),
of which there is a bounded number. Source: Kafka's classic group protocol, KIP-345 for leaving by
instance id.
"""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.config import GroupConfig
from millrace_server.group.effects import Left, LeftMember, Refusal, Token, Turn
from millrace_server.group.group import Group
from millrace_server.group.member import Member
from millrace_server.group.rebalances import Due, Rebalances
from millrace_server.group.requests import NO_MEMBER, Heartbeat, Leave, LeavingMember
from millrace_server.group.room import Room
from millrace_server.group.states import GroupState
from millrace_server.loop.deadlines import Deadlines


class Liveness:
    """The members of one coordinator's groups, as far as being there goes."""

    __slots__ = ("_config", "_deadlines", "_expected", "_rebalances", "_room")

    def __init__(
        self,
        config: GroupConfig,
        room: Room,
        rebalances: Rebalances,
        deadlines: Deadlines[Due],
    ) -> None:
        self._config = config
        self._room = room
        self._rebalances = rebalances
        self._deadlines = deadlines
        self._expected: dict[Due, Group] = {}
        """The pending ids of all groups, oldest first."""

    def heartbeat(self, group: Group, request: Heartbeat, turn: Turn) -> None:
        """A member is alive. Raises `ApiError` when it has to do something."""
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        self._rebalances.touch(group, member, turn)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"Group {group.name!r} rebalances after generation {group.generation}: finish "
                "what is at hand and join again",
            )

    def leave(self, group: Group, request: Leave, token: Token, turn: Turn) -> None:
        """Members leave; each is answered for itself."""
        left = []
        for leaving in request.members:
            try:
                self._leave(group, leaving, turn)
                refusal = None
            except ApiError as refused:
                refusal = Refusal.of(refused)
            left.append(LeftMember(leaving.member_id, leaving.instance_id, refusal))
        turn.reply(token, Left(tuple(left)))

    def expect(self, group: Group, member_id: str, timeout_ms: int, turn: Turn) -> None:
        """A newcomer has been told its id; over the limit the oldest such id is forgotten."""
        most = self._config.pending_members_max
        # At the limit a coordinator that has no such id may still give one.
        while self._room.pending_count >= most and self.forget_oldest(turn):
            pass
        due = Due("pending", group.name, member_id)
        self._room.pending_count += 1
        group.pending.add(member_id)
        self._expected[due] = group
        self._deadlines.set(due, turn.moment.now_ms + timeout_ms)

    def arrived(self, group: Group, member_id: str) -> None:
        """A newcomer has come back, or will not: its id is pending no longer."""
        due = Due("pending", group.name, member_id)
        group.pending.discard(member_id)
        if self._expected.pop(due, None) is not None:
            self._room.pending_count -= 1
            self._deadlines.cancel(due)

    def forget_oldest(self, turn: Turn) -> bool:
        """Forgets the id that has been pending longest; False when there is none."""
        due = next(iter(self._expected), None)
        if due is None:
            return False
        self.on_pending_due(self._expected[due], due.member_id, turn)
        return True

    def fence(self, group: Group, member: Member, turn: Turn) -> None:
        """A static member's id is about to be replaced: whoever waits under it is turned away."""
        refusal = Refusal.saying(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Another process has joined group {group.name!r} as instance {member.instance_id!r}; "
            "give each process its own instance id",
            member.member_id,
        )
        self._deadlines.cancel(Due("session", group.name, member.member_id))
        turn.reply(group.take_join(member), refusal)
        token, member.sync_token = member.sync_token, None
        turn.reply(token, refusal)

    def on_session_due(self, group: Group, member_id: str, turn: Turn) -> None:
        """Nothing was heard of a member for its session timeout."""
        member = group.members.get(member_id)
        if member is None:
            return
        waits = member.join_token is not None or member.sync_token is not None
        if waits and not member.is_new:
            # It cannot heartbeat while it waits for us; its session begins with the answer.
            return
        refusal = Refusal.saying(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Group {group.name!r} has waited too long for its other members; join again",
        )
        self._rebalances.remove(group, member_id, turn, refusal)

    def on_pending_due(self, group: Group, member_id: str, turn: Turn) -> None:
        """A newcomer has not come back with the id it was given."""
        self.arrived(group, member_id)
        self._rebalances.try_complete(group, turn)
        turn.perhaps_idle.append(group.name)

    def cancel(self, group: Group) -> None:
        """Forgets everybody in a group that goes away."""
        for member_id in list(group.pending):
            self.arrived(group, member_id)
        self._rebalances.cancel(group)

    def _leave(self, group: Group, leaving: LeavingMember, turn: Turn) -> None:
        member_id, instance_id = leaving.member_id, leaving.instance_id
        if member_id == NO_MEMBER:
            current = group.static_ids.get(instance_id or "")
            if current is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Group {group.name!r} has no instance {instance_id!r} that could leave",
                )
            member_id = current
        elif member_id in group.pending:
            self.on_pending_due(group, member_id, turn)
            return
        group.check_member(member_id, instance_id)
        refusal = Refusal.saying(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id!r} has left group {group.name!r}"
        )
        self._rebalances.remove(group, member_id, turn, refusal)
