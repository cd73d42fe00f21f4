"""The groups of one coordinator by name: how they come to be, and when they are forgotten.

Owns the bound on their number, and that a group about which nothing is worth remembering leaves no
trace. Knows no rule of membership.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.appends import AppendsInFlight
from millrace_server.group.config import GroupConfig
from millrace_server.group.effects import Turn
from millrace_server.group.group import Group
from millrace_server.group.image import GroupsImage
from millrace_server.group.liveness import Liveness
from millrace_server.group.rebalances import Rebalances
from millrace_server.group.room import GROUP_BYTES, Room
from millrace_server.group.states import GroupState


class Registry:
    """Name to group. Every group that the image tells of is here, and takes room."""

    __slots__ = ("_appends", "_config", "_groups", "_image", "_liveness", "_rebalances", "_room")

    def __init__(
        self,
        config: GroupConfig,
        room: Room,
        image: GroupsImage,
        appends: AppendsInFlight,
        rebalances: Rebalances,
        liveness: Liveness,
    ) -> None:
        self._config = config
        self._room = room
        self._image = image
        self._appends = appends
        self._rebalances = rebalances
        self._liveness = liveness
        self._groups: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def open(self, group_id: str, turn: Turn) -> Group:
        """The group of that name, made if there is none. Raises `ApiError` when there are too many.

        At the limit newcomers that were told to come back give way: their groups may be empty.
        """
        group = self._groups.get(group_id)
        if group is not None:
            return group
        while len(self._groups) >= self._config.groups_max and self._liveness.forget_oldest(turn):
            self.drop_idle(turn)
        if len(self._groups) >= self._config.groups_max:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The coordinator of group {group_id!r} has {len(self._groups)} groups, which is "
                "all it may; delete groups that are not used any more",
            )
        self._room.check(GROUP_BYTES)
        group = self._groups[group_id] = Group(group_id, self._room, wall_ms=turn.moment.wall_ms)
        turn.perhaps_idle.append(group_id)
        return group

    def restore(self, group_id: str, turn: Turn) -> None:
        """Makes the group what the image says of it, if it says anything: as after a restart."""
        stored = self._image.groups.get(group_id)
        if stored is None:
            if group_id in self._image:
                self._groups[group_id] = Group(group_id, self._room, wall_ms=turn.moment.wall_ms)
            return
        group = self._groups[group_id] = Group.restored(group_id, self._room, stored)
        for member in group.members.values():
            self._rebalances.touch(group, member, turn)
        if len(group.members) > self._config.group_size_max:
            # The limit was lowered: who rejoins last will not fit.
            self._rebalances.prepare(group, turn)

    def revive(self, group_id: str) -> None:
        """A group that could not be removed is empty again; its generations go on.

        Not what the image says of it, which may be about to change: that it became empty can
        still be on its way to the log.
        """
        dead = self._groups[group_id]
        self._liveness.cancel(dead)
        dead.close()
        group = self._groups[group_id] = Group(group_id, self._room, wall_ms=dead.state_wall_ms)
        group.generation, group.protocol_type = dead.generation, dead.protocol_type

    def forget(self, group_id: str) -> None:
        """Drops the group with its deadlines; nobody may wait in it."""
        group = self._groups.pop(group_id, None)
        if group is not None:
            self._liveness.cancel(group)
            group.close()

    def drop_idle(self, turn: Turn) -> None:
        """Forgets those of `perhaps_idle` of which nothing is left or on its way to the log."""
        while turn.perhaps_idle:
            group = self._groups.get(turn.perhaps_idle.pop())
            if (
                group is not None
                and group.state is GroupState.EMPTY
                and not group.pending
                and group.name not in self._image
                and not self._appends.touch(group.name)
            ):
                self.forget(group.name)
