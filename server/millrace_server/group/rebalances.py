"""Rebalances: how a group gets from one generation to the next.

Owns the two phases and their timeouts: joins are parked until everybody has joined or the rebalance
timeout has passed, then syncs until the leader's assignment is durable. Members who did not join,
or who joined and never asked for their assignment, are dropped. Who is allowed to join is `joins`'s
business. Source: Kafka's classic group protocol; the initial delay is KIP-134's.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from millrace_protocol.errors import ErrorCode
from millrace_server.group.appends import AppendsInFlight, AssignmentStored, Change
from millrace_server.group.config import GroupConfig
from millrace_server.group.effects import Joined, Refusal, Synced, Token, Turn
from millrace_server.group.group import Group
from millrace_server.group.member import Member
from millrace_server.group.records import GroupWritten, StoredGroup
from millrace_server.group.states import GroupState, Step
from millrace_server.loop.deadlines import Deadlines


class Due(NamedTuple):
    """What a deadline is for."""

    kind: Literal["session", "pending", "join", "sync", "expiry"]
    group_id: str = ""
    member_id: str = ""


class Rebalances:
    """The rebalances of one coordinator's groups."""

    __slots__ = ("_appends", "_config", "_deadlines")

    def __init__(
        self, config: GroupConfig, deadlines: Deadlines[Due], appends: AppendsInFlight
    ) -> None:
        self._config = config
        self._deadlines = deadlines
        self._appends = appends

    def touch(self, group: Group, member: Member, turn: Turn) -> None:
        """The member has been heard of: its session begins anew."""
        self._deadlines.set(
            Due("session", group.name, member.member_id),
            turn.moment.now_ms + member.session_timeout_ms,
        )

    def add(
        self, group: Group, member: Member, *, protocol_type: str, token: Token, turn: Turn
    ) -> None:
        """A newcomer joins, and with it a rebalance begins, unless one runs."""
        if group.initial_join_until_ms is not None:
            group.newcomer = True
        member.is_new = True
        group.add(member, protocol_type)
        group.park_join(member, token)
        self._deadlines.set(
            Due("session", group.name, member.member_id),
            turn.moment.now_ms + self._config.new_member_join_timeout_ms,
        )
        self.prepare_if_possible(group, turn)

    def rejoin(self, group: Group, member: Member, *, token: Token, turn: Turn) -> None:
        """A member joins again, and with it a rebalance begins, unless one runs."""
        displaced = group.park_join(member, token)
        turn.reply(
            displaced,
            Refusal.saying(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A later join of member {member.member_id!r} has taken the place of this one",
                member.member_id,
            ),
        )
        self.prepare_if_possible(group, turn)

    def prepare_if_possible(self, group: Group, turn: Turn) -> None:
        if group.can_take(Step.REBALANCE):
            self.prepare(group, turn)

    def prepare(self, group: Group, turn: Turn) -> None:
        """Begins a rebalance: everybody has to join again."""
        self._refuse_syncs(
            group,
            turn,
            Refusal.saying(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"Group {group.name!r} began to rebalance before generation {group.generation} "
                "had its assignment; join again",
            ),
        )
        group.unsynced.clear()
        self._deadlines.cancel(Due("sync", group.name))
        was_empty = group.state is GroupState.EMPTY
        group.take(Step.REBALANCE, wall_ms=turn.moment.wall_ms)
        now_ms, delay_ms = turn.moment.now_ms, self._config.initial_rebalance_delay_ms
        if not was_empty:
            self._wait_for_joins(group, turn)
            self.try_complete(group, turn)
        elif delay_ms == 0:
            self._complete(group, turn)
        else:
            group.initial_join_until_ms = now_ms + max(group.rebalance_timeout_ms, delay_ms)
            self._deadlines.set(Due("join", group.name), now_ms + delay_ms)

    def try_complete(self, group: Group, turn: Turn) -> None:
        """Completes the join phase if nobody is left to wait for."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.initial_join_until_ms is None
            and group.all_joined
        ):
            self._complete(group, turn)

    def remove(self, group: Group, member_id: str, turn: Turn, refusal: Refusal) -> None:
        """A member goes; requests of it that are parked get `refusal`, and the others rebalance."""
        self._forget(group, member_id, turn, refusal)
        self.prepare_if_possible(group, turn)
        self.try_complete(group, turn)

    def on_join_due(self, group: Group, turn: Turn) -> None:
        """The initial delay or the rebalance timeout has passed."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        until_ms, now_ms = group.initial_join_until_ms, turn.moment.now_ms
        if until_ms is not None and group.newcomer and now_ms < until_ms:
            group.newcomer = False
            due_ms = min(now_ms + self._config.initial_rebalance_delay_ms, until_ms)
            self._deadlines.set(Due("join", group.name), due_ms)
            return
        self._complete(group, turn)

    def on_sync_due(self, group: Group, turn: Turn) -> None:
        """The rebalance timeout has passed since the generation began: who never synced goes."""
        if not group.unsynced:
            return
        refusal = Refusal.saying(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"It asked for no assignment of generation {group.generation} in time; join again",
        )
        for member_id in [each for each in group.members if each in group.unsynced]:
            self._forget(group, member_id, turn, refusal)
        self.prepare_if_possible(group, turn)

    def synced(self, group: Group, member: Member) -> None:
        """The member has asked for its assignment."""
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            self._deadlines.cancel(Due("sync", group.name))

    def store(
        self, group: Group, stored: StoredGroup, assignments: dict[str, bytes], turn: Turn
    ) -> None:
        """Writes the generation with its assignment; the syncs are answered when it is durable."""
        purpose = AssignmentStored(group.name, group.generation, assignments)
        self._appends.start(turn, purpose, [GroupWritten(group.name, stored)])

    def on_stored(self, done: AssignmentStored, group: Group | None, turn: Turn) -> None:
        """The assignment is durable: everybody may have it, if the generation still holds."""
        if group is None or not self._awaits(group, done):
            return
        for member in group.members.values():
            group.assign(member, done.assignments.get(member.member_id, b""))
            if member.sync_token is not None:
                token, member.sync_token = member.sync_token, None
                turn.reply(token, assignment_of(group, member))
                self.touch(group, member, turn)
        group.take(Step.ASSIGNED, wall_ms=turn.moment.wall_ms)

    def on_not_stored(
        self, done: AssignmentStored, group: Group | None, refusal: Refusal, turn: Turn
    ) -> None:
        """The assignment could not be written: everybody is told why, and has to join again."""
        if group is not None and self._awaits(group, done):
            self.give_up_assignment(group, refusal, turn)

    def give_up_assignment(self, group: Group, refusal: Refusal, turn: Turn) -> None:
        """The generation gets no assignment: everybody is told why, and has to join again."""
        self._refuse_syncs(group, turn, refusal)
        self.prepare(group, turn)

    def cancel(self, group: Group) -> None:
        """Forgets every deadline of a group that goes away."""
        for member_id in group.members:
            self._deadlines.cancel(Due("session", group.name, member_id))
        for member_id in group.pending:
            self._deadlines.cancel(Due("pending", group.name, member_id))
        self._deadlines.cancel(Due("join", group.name))
        self._deadlines.cancel(Due("sync", group.name))

    def _complete(self, group: Group, turn: Turn) -> None:
        """Ends the join phase with those who have joined, and with static members in any case."""
        late = Refusal.saying(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"It did not join again within the rebalance timeout of group {group.name!r}",
        )
        for member in list(group.members.values()):
            if member.join_token is None and not member.is_static:
                self._forget(group, member.member_id, turn, late)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has come: their sessions decide.
            group.initial_join_until_ms = None
            self._wait_for_joins(group, turn)
            return
        self._deadlines.cancel(Due("join", group.name))
        group.initial_join_until_ms = None
        group.newcomer = False
        group.begin_generation(wall_ms=turn.moment.wall_ms)
        if group.members:
            self._answer_joins(group, turn)
        else:
            stored = group.stored({}, wall_ms=turn.moment.wall_ms)
            self._appends.start(turn, Change(None, None), [GroupWritten(group.name, stored)])

    def _answer_joins(self, group: Group, turn: Turn) -> None:
        for member in group.members.values():
            turn.reply(group.take_join(member), generation_of(group, member))
            member.is_new = False
            group.unsynced.add(member.member_id)
            self.touch(group, member, turn)
        self._deadlines.set(
            Due("sync", group.name), turn.moment.now_ms + max(1, group.rebalance_timeout_ms)
        )

    def _wait_for_joins(self, group: Group, turn: Turn) -> None:
        self._deadlines.set(
            Due("join", group.name), turn.moment.now_ms + max(1, group.rebalance_timeout_ms)
        )

    def _forget(self, group: Group, member_id: str, turn: Turn, refusal: Refusal) -> None:
        self._deadlines.cancel(Due("session", group.name, member_id))
        member = group.remove(member_id)
        if member is not None:
            turn.reply(member.join_token, refusal)
            turn.reply(member.sync_token, refusal)

    def _refuse_syncs(self, group: Group, turn: Turn, refusal: Refusal) -> None:
        for member in group.members.values():
            if member.sync_token is not None:
                token, member.sync_token = member.sync_token, None
                turn.reply(token, refusal)
                self.touch(group, member, turn)

    def _awaits(self, group: Group, done: AssignmentStored) -> bool:
        return (
            group.state is GroupState.COMPLETING_REBALANCE and group.generation == done.generation
        )


def generation_of(group: Group, member: Member) -> Joined:
    """The current generation as a join of the member is answered."""
    return Joined(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol=group.protocol or "",
        leader_id=group.leader_id or "",
        members=group.joined_members() if group.is_leader(member.member_id) else (),
    )


def assignment_of(group: Group, member: Member) -> Synced:
    """The member's assignment as a sync of it is answered."""
    return Synced(group.protocol_type or "", group.protocol or "", member.assignment)
