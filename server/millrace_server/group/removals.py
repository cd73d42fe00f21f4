"""Removals: groups and offsets that are deleted, expire, or go with their topic.

Owns the tombstones. A group is Dead while they are being written, and gone when they are durable;
if they cannot be written it is empty as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.appends import AppendsInFlight, Change
from millrace_server.group.config import TOMBSTONES_PER_APPEND, GroupConfig
from millrace_server.group.effects import GroupDeleted, PartitionOutcomes, Token, Turn
from millrace_server.group.group import Group
from millrace_server.group.image import GroupsImage
from millrace_server.group.offsets import Offsets
from millrace_server.group.rebalances import Due
from millrace_server.group.records import GroupForgotten, GroupRecord
from millrace_server.group.registry import Registry
from millrace_server.group.requests import TopicPartition
from millrace_server.group.states import GroupState, Step
from millrace_server.loop.deadlines import Deadlines


class Removals:
    """What goes away in one coordinator."""

    __slots__ = (
        "_appends",
        "_config",
        "_deadlines",
        "_groups",
        "_image",
        "_offsets",
        "_to_look_through",
    )

    def __init__(
        self,
        config: GroupConfig,
        groups: Registry,
        image: GroupsImage,
        offsets: Offsets,
        appends: AppendsInFlight,
        deadlines: Deadlines[Due],
    ) -> None:
        self._config = config
        self._groups = groups
        self._image = image
        self._offsets = offsets
        self._appends = appends
        self._deadlines = deadlines
        self._to_look_through: list[str] = []

    def delete_group(self, group_id: str, token: Token, turn: Turn) -> None:
        """Deletes a group without members, with its offsets. Raises `ApiError`."""
        group = self._existing(group_id)
        if group.state is not GroupState.EMPTY:
            raise ApiError(
                ErrorCode.NON_EMPTY_GROUP,
                f"Group {group_id!r} has {len(group.members)} members; stop them, or remove them "
                "with LeaveGroup, then delete it",
            )
        group.take(Step.REMOVED, wall_ms=group.state_wall_ms)
        tombstones: list[GroupRecord] = [*self._offsets.forget_all(group_id)]
        self._write([*tombstones, GroupForgotten(group_id)], turn, token, GroupDeleted(group_id))

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], token: Token, turn: Turn
    ) -> None:
        """Forgets offsets that no member uses. Raises `ApiError`."""
        records, outcomes = self._offsets.delete(self._existing(group_id), partitions)
        result = PartitionOutcomes(tuple(outcomes))
        if records:
            self._write(records, turn, token, result)
        else:
            turn.reply(token, result)

    def on_topic_deleted(self, topic: str, turn: Turn) -> None:
        """A topic is gone: so are its offsets, whoever reads it, or a new topic of that name would
        be read from the old one's place."""
        self._write(self._offsets.forget_topic(topic), turn)

    def schedule(self, turn: Turn) -> None:
        """Expiry looks through everything after the check interval."""
        self._deadlines.set(
            Due("expiry"), turn.moment.now_ms + self._config.offsets_retention_check_interval_ms
        )

    def on_expiry_due(self, turn: Turn) -> None:
        """Looks through some groups for what has expired; the others follow at once."""
        if not self._to_look_through:
            self._to_look_through = [group.name for group in self._groups]
        looked_at = 0
        records: list[GroupRecord] = []
        while self._to_look_through and looked_at < self._config.expiry_slice:
            group = self._groups.get(self._to_look_through.pop())
            if group is not None:
                records += self._expired(group, turn)
                looked_at += 1 + sum(map(len, self._image.of_group(group.name).values()))
        self._write(records, turn)
        if self._to_look_through:
            self._deadlines.set(Due("expiry"), turn.moment.now_ms)
        else:
            self.schedule(turn)

    def _expired(self, group: Group, turn: Turn) -> list[GroupRecord]:
        records: list[GroupRecord] = []
        records += self._offsets.expired(group, wall_ms=turn.moment.wall_ms)
        is_done = (
            group.state is GroupState.EMPTY
            and not group.pending
            and len(records) == len(self._offsets.known(group.name))
        )
        if is_done:
            group.take(Step.REMOVED, wall_ms=group.state_wall_ms)
            records.append(GroupForgotten(group.name))
        return records

    def _existing(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id!r}")
        return group

    def _write(
        self,
        records: Sequence[GroupRecord],
        turn: Turn,
        token: Token | None = None,
        result: PartitionOutcomes | GroupDeleted | None = None,
    ) -> None:
        """Appends of a size that fits, in order; the last that comes back answers."""
        starts = range(0, len(records), TOMBSTONES_PER_APPEND)
        change = Change(token, result, appends_left=len(starts))
        for start in starts:
            self._appends.start(turn, change, records[start : start + TOMBSTONES_PER_APPEND])
