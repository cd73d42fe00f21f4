"""The groups of one shard by name: how they are created, restored, deleted and expired.

Owns the bound on their number, the tombstones of groups and offsets, and that a group with nothing
to keep is removed. A group is Dead while its tombstones are being written, and removed when they
are durable; if they cannot be written, the group is Empty again. Knows no rule of membership.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.shard import Token
from millrace_server.group.group import GROUP_BYTES, Group
from millrace_server.group.image import GroupsImage
from millrace_server.group.membership import Membership
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.offsets import Offsets, offset_write_error
from millrace_server.group.rebalance import Rebalance, Timer
from millrace_server.group.records import GroupMetadataTombstone, GroupRecord
from millrace_server.group.requests import (
    DeleteGroupResult,
    GroupAppends,
    GroupEffects,
    OffsetsResult,
    TopicPartition,
)
from millrace_server.group.states import GroupState, Step
from millrace_server.group_config import TOMBSTONES_PER_APPEND, GroupConfig
from millrace_server.loop.deadlines import Deadlines
from millrace_server.principal_shares import Shares


@dataclass(slots=True)
class _Deletion:
    """Tombstones in one or more appends; the reply follows the last of them."""

    appends_left: int
    token: Token | None
    result: OffsetsResult | DeleteGroupResult | None
    error: ApiError | None = None


class Registry:
    """Name to group. Invariant: every group that the image has is here, and uses the quota."""

    __slots__ = (
        "_appends",
        "_config",
        "_groups",
        "_image",
        "_membership",
        "_offsets",
        "_quota",
        "_rebalance",
        "_shares",
        "_timers",
        "_to_expire",
    )

    def __init__(
        self,
        config: GroupConfig,
        quota: MemoryQuota,
        image: GroupsImage,
        *,
        offsets: Offsets,
        membership: Membership,
        rebalance: Rebalance,
        appends: GroupAppends,
        timers: Deadlines[Timer],
    ) -> None:
        self._config = config
        self._quota = quota
        self._image = image
        self._offsets = offsets
        self._membership = membership
        self._rebalance = rebalance
        self._appends = appends
        self._timers = timers
        self._groups: dict[str, Group] = {}
        self._shares = Shares(config.shares, config.groups_max)
        self._to_expire: list[str] = []

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> Group | None:
        """The group, None if there is none."""
        return self._groups.get(group_id)

    def existing(self, group_id: str) -> Group:
        """A group that is not being deleted. Raises `ApiError`."""
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group_id!r}")
        return group

    def of_member(self, group_id: str, member_id: str) -> Group:
        """The group that a member names. Raises `ApiError`."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"There is no group {group_id!r}, so {member_id!r} is no member; join without a "
                "member id",
            )
        if group.state is GroupState.DEAD:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"Group {group_id!r} is being deleted; join again in a moment",
            )
        return group

    def get_or_create(self, group_id: str, principal: str | None, effects: GroupEffects) -> Group:
        """The group of that name. Raises `ApiError` when there are too many.

        At a limit pending ids are dropped, oldest first: their groups may be empty.
        """
        group = self._groups.get(group_id)
        if group is not None:
            return group
        while len(self._groups) >= self._config.groups_max:
            if not self._membership.drop_oldest_pending(effects):
                raise ApiError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The coordinator of group {group_id!r} has {len(self._groups)} groups, which "
                    "is its limit; delete unused groups",
                )
            self.remove_idle()
        while not self._shares.has_room(principal):
            if not self._membership.drop_oldest_pending_of(principal, effects):
                raise ApiError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The coordinator of group {group_id!r} has {self._shares.held(principal)} "
                    f"groups of {principal}, its share; delete unused groups, or raise the "
                    "broker's principal_share_percent",
                )
            self.remove_idle()
        self._quota.check(GROUP_BYTES, principal)
        group = Group(group_id, self._quota, wall_ms=effects.moment.wall_ms)
        self._groups[group_id] = group
        self._membership.maybe_idle.append(group_id)
        return group

    def claim(self, group: Group, principal: str | None) -> None:
        """A group without an owner is the principal's from now on."""
        if self._quota.claim(group.name, principal):
            self._shares.add(principal, 1)

    def restore_all(self, effects: GroupEffects) -> None:
        """Makes every group of the image, after a load, and starts the timer of expiry."""
        for group_id in self._image.names():
            self._restore(group_id, effects)
        self._start_expiry_timer(effects)

    def remove_idle(self, group_ids: Iterable[str] = ()) -> None:
        """Removes groups that have nothing left to keep: of these, and of `maybe_idle`."""
        candidates = self._membership.maybe_idle
        candidates += group_ids
        while candidates:
            group = self._groups.get(candidates.pop())
            if (
                group is not None
                and group.state is GroupState.EMPTY
                and not group.pending_join
                and group.name not in self._image
                and group.name not in self._appends
            ):
                self._remove(group.name)

    def close(self) -> None:
        """Removes all groups; their requests are the runtime's."""
        for name in list(self._groups):
            self._remove(name)
        self._timers.cancel(Timer("expiry"))

    def delete_group(self, group_id: str, token: Token, effects: GroupEffects) -> None:
        """Deletes a group without members, with its offsets. Raises `ApiError`."""
        group = self.existing(group_id)
        if group.state is not GroupState.EMPTY:
            raise ApiError(
                ErrorCode.NON_EMPTY_GROUP,
                f"Group {group_id!r} has {len(group.members)} members; stop them, or remove them "
                "with LeaveGroup, then delete it",
            )
        group.take(Step.REMOVED, wall_ms=group.state_wall_ms)
        tombstones: list[GroupRecord] = [*self._offsets.tombstones_of(group_id)]
        tombstones.append(GroupMetadataTombstone(group_id))
        self._write(tombstones, effects, token, DeleteGroupResult(group_id))

    def delete_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        token: Token,
        effects: GroupEffects,
    ) -> None:
        """Deletes offsets that no member uses. Raises `ApiError`."""
        records, results = self._offsets.delete(self.existing(group_id), partitions)
        result = OffsetsResult(tuple(results))
        if records:
            self._write(records, effects, token, result)
        else:
            effects.reply(token, result)

    def on_topic_deleted(self, topic: str, effects: GroupEffects) -> None:
        """Deletes a topic's offsets in all groups, or a new topic of that name would be read from
        the offsets of the old one."""
        self._write(self._offsets.tombstones_of_topic(topic), effects)

    def on_expiry_timeout(self, effects: GroupEffects) -> None:
        """Expires offsets and groups, some at a time; the others follow at once."""
        if not self._to_expire:
            self._to_expire = list(self._groups)
        checked = 0
        records: list[GroupRecord] = []
        while self._to_expire and checked < self._config.expiry_slice:
            group = self._groups.get(self._to_expire.pop())
            if group is not None:
                records += self._expire(group, effects)
                checked += 1 + sum(map(len, self._image.of_group(group.name).values()))
        self._write(records, effects)
        if self._to_expire:
            self._timers.set(Timer("expiry"), effects.moment.now_ms)
        else:
            self._start_expiry_timer(effects)

    def _start_expiry_timer(self, effects: GroupEffects) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._timers.set(Timer("expiry"), effects.moment.now_ms + interval_ms)

    def _expire(self, group: Group, effects: GroupEffects) -> list[GroupRecord]:
        records: list[GroupRecord] = []
        records += self._offsets.expired(group, wall_ms=effects.moment.wall_ms)
        is_last = (
            group.state is GroupState.EMPTY
            and not group.pending_join
            and len(records) == len(self._offsets.known(group.name))
        )
        if is_last:
            group.take(Step.REMOVED, wall_ms=group.state_wall_ms)
            records.append(GroupMetadataTombstone(group.name))
        return records

    def _write(
        self,
        records: Sequence[GroupRecord],
        effects: GroupEffects,
        token: Token | None = None,
        result: OffsetsResult | DeleteGroupResult | None = None,
    ) -> None:
        """Appends tombstones in chunks that fit a batch."""
        starts = range(0, len(records), TOMBSTONES_PER_APPEND)
        deletion = _Deletion(len(starts), token, result)
        for start in starts:
            chunk = records[start : start + TOMBSTONES_PER_APPEND]
            self._appends.start(effects, chunk, partial(self._on_written, deletion, chunk))

    def _on_written(
        self,
        deletion: _Deletion,
        chunk: Sequence[GroupRecord],
        error: ApiError | None,
        effects: GroupEffects,
    ) -> None:
        deletion.appends_left -= 1
        deletion.error = error or deletion.error
        if deletion.appends_left == 0 and deletion.result is not None:
            failed = deletion.error
            effects.reply(deletion.token, offset_write_error(failed) if failed else deletion.result)
        for record in chunk:
            if isinstance(record, GroupMetadataTombstone):
                if error is None:
                    self._remove(record.group_id)
                    self._restore(record.group_id, effects)
                else:
                    self._undo_deletion(record.group_id)

    def _restore(self, group_id: str, effects: GroupEffects) -> None:
        """Makes the group that the image describes, if it has one."""
        if group_id in self._image:
            # Its offsets may have kept its owner.
            self._shares.add(self._quota.owner_of(group_id), 1)
        stored = self._image.groups.get(group_id)
        if stored is None:
            if group_id in self._image:
                wall_ms = effects.moment.wall_ms
                self._groups[group_id] = Group(group_id, self._quota, wall_ms=wall_ms)
            return
        group = self._groups[group_id] = Group.restored(group_id, self._quota, stored)
        for member in group.members.values():
            self._rebalance.restart_session(group, member, effects)
        if len(group.members) > self._config.group_size_max:
            # The limit was lowered: the last to rejoin will not fit.
            self._rebalance.prepare(group, effects)

    def _undo_deletion(self, group_id: str) -> None:
        """Makes a group whose tombstone could not be written Empty again, in its generation.

        Not the group that the image describes, which may be about to change: the record that it
        became empty can still be in flight.
        """
        dead = self._groups[group_id]
        self._membership.cancel_timers(dead)
        # Before the other is closed, so that the group keeps its owner.
        group = Group(group_id, self._quota, wall_ms=dead.state_wall_ms)
        dead.close()
        group.generation, group.protocol_type = dead.generation, dead.protocol_type
        self._groups[group_id] = group

    def _remove(self, group_id: str) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            self._membership.cancel_timers(group)
            self._shares.add(self._quota.owner_of(group_id), -1)
            group.close()
