"""The group coordinator: the state machine of the groups in one partition of the offsets topic.

Owns the events and their order; each rule is in the module of its noun. The journey of a join:

    join ──► registry: the group ──► membership: the member ──► rebalance: parked
    all have joined ──► rebalance: Reply to each join; the leader assigns
    sync of the leader ──► rebalance: Append ──► on_appended ──► image ──► Reply to each sync

and of a commit:

    commit ──► registry: the group ──► offsets: Append ──► on_appended ──► image ──► Reply

Durable, changed by `replay` alone: generations with their assignments, and committed offsets. Soft,
and lost with the process: parked requests, sessions, ids given out, generations without a durable
assignment. A load therefore finds each group in Stable or Empty and gives every member a new
session. Requests about lost state get UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION, and members join
again. Source: Kafka's GroupCoordinatorShard, classic protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.pending_appends import PendingAppends
from millrace_server.coordinator.shard import Effects, Moment, Token
from millrace_server.group.group import Group
from millrace_server.group.image import GroupsImage
from millrace_server.group.membership import Membership
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.offsets import Offsets
from millrace_server.group.rebalance import Rebalance, Timer
from millrace_server.group.records import GroupRecord
from millrace_server.group.registry import Registry
from millrace_server.group.requests import (
    NO_MEMBER,
    DescribedGroup,
    DescribedMember,
    FetchedOffset,
    GroupAppends,
    GroupEffects,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeaveGroupResult,
    LeaveMemberResult,
    ListedGroup,
    OffsetCommit,
    SyncGroup,
    TopicPartition,
    check_group_id,
    check_join,
)
from millrace_server.group.states import GroupState
from millrace_server.group_config import GroupConfig
from millrace_server.loop.deadlines import Deadlines


class GroupCoordinatorShard:
    """The groups of one partition of the offsets topic; see `CoordinatorShard` for its life.

    `make_id` gives what makes a member id unique; `quota` is shared with the other shards of the
    broker. A heartbeat and the queries, which never wait, return or raise `ApiError`.
    """

    def __init__(
        self, config: GroupConfig, *, make_id: Callable[[], str], quota: MemoryQuota
    ) -> None:
        self._config = config
        self._image = image = GroupsImage(quota)
        self._timers = timers = Deadlines[Timer]()
        self._appends: GroupAppends = PendingAppends(lambda record: record.group_id)
        appends = self._appends
        self._rebalance = Rebalance(config, quota, appends, timers)
        self._membership = Membership(config, quota, self._rebalance, appends, timers, make_id)
        self._offsets = Offsets(config, quota, image, appends)
        self._groups = Registry(
            config,
            quota,
            image,
            offsets=self._offsets,
            membership=self._membership,
            rebalance=self._rebalance,
            appends=appends,
            timers=timers,
        )

    @property
    def image(self) -> GroupsImage:
        """The durable state; to be read, not to be changed."""
        return self._image

    @property
    def pending_appends(self) -> int:
        """Appends that have not ended."""
        return len(self._appends)

    def replay(self, record: GroupRecord) -> None:
        """See `CoordinatorShard`."""
        self._image.replay(record)

    def on_loaded(self, moment: Moment) -> GroupEffects:
        """See `CoordinatorShard`."""
        effects: GroupEffects = Effects(moment)
        self._groups.restore_all(effects)
        return effects

    def on_unloaded(self) -> None:
        """See `CoordinatorShard`."""
        self._groups.close()
        self._image.release()
        self._appends.clear()

    def join(self, token: Token, request: JoinGroup, moment: Moment) -> GroupEffects:
        """The reply is a `JoinGroupResult` when the generation begins."""
        effects: GroupEffects = Effects(moment)
        try:
            check_group_id(request.group_id)
            check_join(self._config, request)
            if request.member_id == NO_MEMBER:
                group = self._groups.get_or_create(request.group_id, request.principal, effects)
            else:
                group = self._groups.of_member(request.group_id, request.member_id)
            self._groups.claim(group, request.principal)
            self._membership.join(group, request, token, effects)
        except ApiError as error:
            effects.reply(token, error)
        self._groups.remove_idle()
        return effects

    def sync(self, token: Token, request: SyncGroup, moment: Moment) -> GroupEffects:
        """The reply is a `SyncGroupResult` when the assignment is durable."""
        effects: GroupEffects = Effects(moment)
        try:
            check_group_id(request.group_id)
            group = self._groups.of_member(request.group_id, request.member_id)
            self._rebalance.sync(group, request, token, effects)
        except ApiError as error:
            effects.reply(token, error)
        return effects

    def heartbeat(self, request: Heartbeat, moment: Moment) -> GroupEffects:
        """A member is alive. Raises `ApiError` when it has to act."""
        effects: GroupEffects = Effects(moment)
        check_group_id(request.group_id)
        group = self._groups.of_member(request.group_id, request.member_id)
        self._membership.heartbeat(group, request, effects)
        return effects

    def leave(self, token: Token, request: LeaveGroup, moment: Moment) -> GroupEffects:
        """The reply is a `LeaveGroupResult`, at once."""
        effects: GroupEffects = Effects(moment)
        try:
            check_group_id(request.group_id)
            effects.reply(token, self._leave(request, effects))
        except ApiError as error:
            effects.reply(token, error)
        self._groups.remove_idle()
        return effects

    def commit(self, token: Token, request: OffsetCommit, moment: Moment) -> GroupEffects:
        """The reply is an `OffsetsResult` when the offsets are durable."""
        effects: GroupEffects = Effects(moment)
        try:
            check_group_id(request.group_id)
            group = self._groups.get(request.group_id)
            if group is None:
                if request.generation >= 0:
                    raise ApiError(
                        ErrorCode.ILLEGAL_GENERATION,
                        f"There is no group {request.group_id!r}, so it has no generation "
                        f"{request.generation}; join it, or commit without a generation",
                    )
                group = self._groups.get_or_create(request.group_id, request.principal, effects)
            self._groups.claim(group, request.principal)
            member = self._offsets.check_committer(group, request)
            if member is not None:
                self._rebalance.restart_session(group, member, effects)
            self._offsets.commit(request, token, effects)
        except ApiError as error:
            effects.reply(token, error)
        self._groups.remove_idle()
        return effects

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> list[FetchedOffset]:
        """The durable offsets of a group, all for None. Raises `ApiError`.

        With `require_stable` a partition whose commit is being written is UNSTABLE_OFFSET_COMMIT.
        """
        check_group_id(group_id)
        return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(
        self, token: Token, group_id: str, partitions: Iterable[TopicPartition], moment: Moment
    ) -> GroupEffects:
        """The reply is an `OffsetsResult` when the tombstones are durable."""
        effects: GroupEffects = Effects(moment)
        try:
            check_group_id(group_id)
            self._groups.delete_offsets(group_id, partitions, token, effects)
        except ApiError as error:
            effects.reply(token, error)
        return effects

    def delete_group(self, token: Token, group_id: str, moment: Moment) -> GroupEffects:
        """The reply is a `DeleteGroupResult` when the tombstones are durable."""
        effects: GroupEffects = Effects(moment)
        try:
            check_group_id(group_id)
            self._groups.delete_group(group_id, token, effects)
        except ApiError as error:
            effects.reply(token, error)
        return effects

    def on_topic_deleted(self, topic: str, moment: Moment) -> GroupEffects:
        """A topic is deleted: so are its offsets in all groups."""
        effects: GroupEffects = Effects(moment)
        self._groups.on_topic_deleted(topic, effects)
        return effects

    def list_groups(self) -> list[ListedGroup]:
        """Every group that is not being deleted."""
        return [
            ListedGroup(
                group.name,
                group.protocol_type or "",
                group.state,
                len(group.members),
                _shown_protocol(group),
            )
            for group in self._groups
            if group.state is not GroupState.DEAD
        ]

    def describe(self, group_id: str) -> DescribedGroup:
        """One group. Raises `ApiError`."""
        check_group_id(group_id)
        return _described(self._groups.existing(group_id))

    def on_appended(self, append_id: int, moment: Moment) -> GroupEffects:
        """See `CoordinatorShard`."""
        effects: GroupEffects = Effects(moment)
        ended = self._appends.end(append_id, durable=True)
        for record in ended.records:
            self._image.replay(record)
        if ended.on_ended is not None:
            ended.on_ended(None, effects)
        self._groups.remove_idle(ended.keys)
        return effects

    def on_append_failed(self, append_id: int, error: ApiError, moment: Moment) -> GroupEffects:
        """See `CoordinatorShard`."""
        effects: GroupEffects = Effects(moment)
        ended = self._appends.end(append_id, durable=False)
        if ended.on_ended is not None:
            ended.on_ended(error, effects)
        self._groups.remove_idle(ended.keys)
        return effects

    def deadline_ms(self) -> int | None:
        """See `CoordinatorShard`."""
        return self._timers.next_due_ms()

    def on_deadline(self, moment: Moment) -> GroupEffects:
        """See `CoordinatorShard`."""
        effects: GroupEffects = Effects(moment)
        for timer in self._timers.pop_due(moment.now_ms):
            if timer in self._timers:
                continue  # A timer that was due before it has started it anew.
            if timer.kind == "expiry":
                self._groups.on_expiry_timeout(effects)
                continue
            group = self._groups.get(timer.group_id)
            if group is not None:
                self._on_group_timer(group, timer, effects)
        self._groups.remove_idle()
        return effects

    def _on_group_timer(self, group: Group, timer: Timer, effects: GroupEffects) -> None:
        if timer.kind == "session":
            self._membership.on_session_timeout(group, timer.member_id, effects)
        elif timer.kind == "pending join":
            self._membership.on_pending_timeout(group, timer.member_id, effects)
        elif timer.kind == "join":
            self._rebalance.on_join_timeout(group, effects)
        else:
            self._rebalance.on_sync_timeout(group, effects)

    def _leave(self, request: LeaveGroup, effects: GroupEffects) -> LeaveGroupResult:
        """Each member leaves for itself."""
        group = self._groups.get(request.group_id)
        results = []
        for leaving in request.members:
            error = None
            if group is None:
                error = ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"There is no group {request.group_id!r}"
                )
            else:
                try:
                    self._membership.leave(group, leaving, effects)
                except ApiError as refused:
                    error = refused.with_traceback(None)
            results.append(LeaveMemberResult(leaving.member_id, leaving.instance_id, error))
        return LeaveGroupResult(tuple(results))


def _described(group: Group) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    protocol = _shown_protocol(group)
    return DescribedGroup(
        group_id=group.name,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol=protocol,
        generation=group.generation,
        leader_id=group.leader_id or "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(protocol) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )


def _shown_protocol(group: Group) -> str:
    return (group.protocol or "") if group.state is GroupState.STABLE else ""
