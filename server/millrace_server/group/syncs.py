"""Syncs: the leader brings the assignment, everybody gets theirs.

Owns the rules of syncing. Refuses to know what an assignment says. Source: Kafka's classic group
protocol.
"""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.appends import AppendsInFlight
from millrace_server.group.config import GroupConfig
from millrace_server.group.effects import Refusal, Token, Turn
from millrace_server.group.group import Group
from millrace_server.group.rebalances import Rebalances, assignment_of
from millrace_server.group.records import GroupWritten, encode_record
from millrace_server.group.requests import Sync
from millrace_server.group.room import Room
from millrace_server.group.states import GroupState


class Syncs:
    """The syncs of one coordinator's groups."""

    __slots__ = ("_appends", "_config", "_rebalances", "_room")

    def __init__(
        self, config: GroupConfig, room: Room, rebalances: Rebalances, appends: AppendsInFlight
    ) -> None:
        self._config = config
        self._room = room
        self._rebalances = rebalances
        self._appends = appends

    def sync(self, group: Group, request: Sync, token: Token, turn: Turn) -> None:
        """A member asks for its assignment, the leader brings everybody's. Raises `ApiError`."""
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        _check_protocol(group, request)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"Group {group.name!r} rebalances again after generation {group.generation}; "
                "join again",
            )
        self._rebalances.synced(group, member)
        if group.state is GroupState.STABLE:
            turn.reply(token, assignment_of(group, member))
            self._rebalances.touch(group, member, turn)
            return
        displaced, member.sync_token = member.sync_token, token
        turn.reply(
            displaced,
            Refusal.saying(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A later sync of member {member.member_id!r} has taken the place of this one",
            ),
        )
        if group.is_leader(member.member_id) and not self._appends.stores_assignment(
            group.name, group.generation
        ):
            self._assign(group, request, turn)

    def _assign(self, group: Group, request: Sync, turn: Turn) -> None:
        assignments = {
            member_id: assignment
            for member_id, assignment in request.assignments
            if member_id in group.members
        }
        stored = group.stored(assignments, wall_ms=turn.moment.wall_ms)
        size = len(encode_record(GroupWritten(group.name, stored))[1] or b"")
        most = self._config.group_metadata_bytes_max
        message = (
            f"The record of group {group.name!r} with its assignment has {size} bytes and may have "
            f"{most}; read fewer topics in one group, or have fewer members"
        )
        if size <= most:
            try:
                self._room.check(group.growth_by(assignments))
            except ApiError as refused:
                message = refused.message
            else:
                self._rebalances.store(group, stored, assignments, turn)
                return
        refusal = Refusal.saying(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self._rebalances.give_up_assignment(group, refusal, turn)


def _check_protocol(group: Group, request: Sync) -> None:
    for what, asked, current in (
        ("protocol type", request.protocol_type, group.protocol_type),
        ("protocol", request.protocol, group.protocol),
    ):
        if asked is not None and asked != current:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Generation {group.generation} of group {group.name!r} has {what} {current!r}, "
                f"not {asked!r}; join again",
            )
