"""The coordinator of the groups whose names fall on one partition of the offsets topic.

Owns what comes in and in which order things happen; each rule is in the module of its noun
(`joins`, `syncs`, `liveness`, `rebalances`, `offsets`, `removals`). Does nothing itself: an event
returns effects. Source: Kafka's group coordinator, classic protocol.

Durable, changed by `replay` alone: generations with their assignments, committed offsets. Soft,
and gone with a restart: who has joined or waits, sessions, ids given out, generations whose leader
had not synced. A restart therefore finds each group in Stable or Empty, gives every member a new
session, and answers what it does not know with UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION, upon which
members join again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.appends import (
    AppendsInFlight,
    AssignmentStored,
    Change,
    InFlight,
    StaticRestart,
    failed_group_write,
    failed_offset_write,
)
from millrace_server.group.config import GROUP_ID_LENGTH_MAX, GroupConfig
from millrace_server.group.descriptions import describe_group, list_group
from millrace_server.group.effects import (
    Effect,
    FetchedOffset,
    GroupDescription,
    GroupListing,
    Left,
    LeftMember,
    PartitionOutcomes,
    Refusal,
    Token,
    Turn,
)
from millrace_server.group.group import Group
from millrace_server.group.image import GroupsImage
from millrace_server.group.joins import Joins
from millrace_server.group.liveness import Liveness
from millrace_server.group.offsets import Offsets
from millrace_server.group.rebalances import Due, Rebalances
from millrace_server.group.records import GroupForgotten, GroupRecord
from millrace_server.group.registry import Registry
from millrace_server.group.removals import Removals
from millrace_server.group.requests import (
    NO_MEMBER,
    Commit,
    Heartbeat,
    Join,
    Leave,
    Moment,
    Sync,
    TopicPartition,
)
from millrace_server.group.room import Room
from millrace_server.group.states import GroupState
from millrace_server.group.syncs import Syncs
from millrace_server.loop.deadlines import Deadlines


class Coordinator:
    """The groups of one partition of the offsets topic.

    Life: `replay` every record of the partition, `on_loaded`, then events, at last `unload`. Before
    `on_loaded` and after `unload` requests are refused as Kafka refuses them. `make_id` gives what
    makes a member id unique; `room` is shared with the other coordinators of the broker.

    Events that take a token return effects, among which, now or later, is one `Reply` with that
    token. Questions and heartbeats, which never wait, return their answer or raise `ApiError`.
    """

    def __init__(
        self, config: GroupConfig, *, make_id: Callable[[], str], room: Room | None = None
    ) -> None:
        room = room or Room(config.memory_bytes)
        self._image = GroupsImage()
        room.images.append(self._image)
        self._room = room
        self._deadlines = Deadlines[Due]()
        self._appends = AppendsInFlight()
        self._rebalances = Rebalances(config, self._deadlines, self._appends)
        self._liveness = Liveness(config, room, self._rebalances, self._deadlines)
        self._joins = Joins(config, room, self._rebalances, self._liveness, self._appends, make_id)
        self._syncs = Syncs(config, room, self._rebalances, self._appends)
        self._offsets = Offsets(config, room, self._image, self._appends)
        self._groups = Registry(
            config, room, self._image, self._appends, self._rebalances, self._liveness
        )
        self._removals = Removals(
            config, self._groups, self._image, self._offsets, self._appends, self._deadlines
        )
        self._closed: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def image(self) -> GroupsImage:
        """What is durable; to be read, not to be changed."""
        return self._image

    @property
    def appends_in_flight(self) -> int:
        """Appends that the shell has been asked for and that have not come back."""
        return len(self._appends)

    def replay(self, record: GroupRecord) -> None:
        """Takes the next record of the partition."""
        self._image.replay(record)

    def on_loaded(self, moment: Moment) -> list[Effect]:
        """The whole partition has been replayed: the groups live from now on."""
        turn = Turn(moment)
        self._closed = None
        for group_id in self._image.names():
            self._groups.restore(group_id, turn)
        self._removals.schedule(turn)
        return turn.effects

    def unload(self, code: ErrorCode = ErrorCode.NOT_COORDINATOR) -> list[Effect]:
        """Another coordinates from here on, or nobody: whoever waits is told `code`."""
        turn = Turn(Moment(0, 0))
        self._closed = code
        refusal = Refusal.saying(code, ERROR_TRAITS[code].message)
        for group in self._groups:
            for member in group.members.values():
                turn.reply(group.take_join(member), refusal)
                turn.reply(member.sync_token, refusal)
        for entry in self._appends.drain():
            purpose = entry.purpose
            if isinstance(purpose, StaticRestart):
                turn.reply(purpose.token, refusal)
            elif isinstance(purpose, Change):
                token, purpose.token = purpose.token, None
                turn.reply(token, refusal)
        for name in [group.name for group in self._groups]:
            self._groups.forget(name)
        self._deadlines.cancel(Due("expiry"))
        self._room.leave(self._image)
        return turn.effects

    def join(self, token: Token, request: Join, moment: Moment) -> list[Effect]:
        """Answered with `Joined` when the generation begins, or with `Refusal`."""
        turn = Turn(moment)
        try:
            self._check_open(request.group_id)
            self._joins.check(request)
            if request.member_id == NO_MEMBER:
                group = self._groups.open(request.group_id, turn)
            else:
                group = self._group_of_member(request.group_id, request.member_id)
            self._joins.join(group, request, token, turn)
        except ApiError as refused:
            turn.reply(token, Refusal.of(refused, request.member_id))
        self._groups.drop_idle(turn)
        return turn.effects

    def sync(self, token: Token, request: Sync, moment: Moment) -> list[Effect]:
        """Answered with `Synced` when the assignment is durable, or with `Refusal`."""
        turn = Turn(moment)
        try:
            # Who syncs while the log is being read has lost its generation, unless it is durable.
            self._check_open(request.group_id, loading=ErrorCode.REBALANCE_IN_PROGRESS)
            group = self._group_of_member(request.group_id, request.member_id)
            self._syncs.sync(group, request, token, turn)
        except ApiError as refused:
            turn.reply(token, Refusal.of(refused))
        return turn.effects

    def heartbeat(self, request: Heartbeat, moment: Moment) -> None:
        """A member is alive. Raises `ApiError` when it has to do something."""
        if self._closed is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return  # Nobody's session runs yet, and the member can do nothing about it.
        self._check_open(request.group_id)
        group = self._group_of_member(request.group_id, request.member_id)
        self._liveness.heartbeat(group, request, Turn(moment))

    def leave(self, token: Token, request: Leave, moment: Moment) -> list[Effect]:
        """Answered at once with `Left`, or with `Refusal`."""
        turn = Turn(moment)
        try:
            self._check_open(request.group_id)
            group = self._groups.get(request.group_id)
            if group is None:
                refusal = Refusal.saying(ErrorCode.UNKNOWN_MEMBER_ID, _no_group(request.group_id))
                left = [
                    LeftMember(each.member_id, each.instance_id, refusal)
                    for each in request.members
                ]
                turn.reply(token, Left(tuple(left)))
            else:
                self._liveness.leave(group, request, token, turn)
        except ApiError as refused:
            turn.reply(token, Refusal.of(refused))
        self._groups.drop_idle(turn)
        return turn.effects

    def commit(self, token: Token, request: Commit, moment: Moment) -> list[Effect]:
        """Answered with `PartitionOutcomes` when the offsets are durable, or with `Refusal`."""
        turn = Turn(moment)
        try:
            self._check_open(request.group_id)
            group = self._groups.get(request.group_id)
            if group is None:
                if request.generation >= 0:
                    raise ApiError(
                        ErrorCode.ILLEGAL_GENERATION,
                        f"{_no_group(request.group_id)}, so generation {request.generation} of it "
                        "does not hold; join it, or commit without a generation",
                    )
                group = self._groups.open(request.group_id, turn)
            member = self._offsets.check_committer(group, request)
            if member is not None:
                self._rebalances.touch(group, member, turn)
            records, outcomes = self._offsets.commit(request, wall_ms=moment.wall_ms)
            result = PartitionOutcomes(tuple(outcomes))
            if records:
                self._appends.start(turn, Change(token, result), records)
            else:
                turn.reply(token, result)
        except ApiError as refused:
            turn.reply(token, Refusal.of(refused))
        self._groups.drop_idle(turn)
        return turn.effects

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> list[FetchedOffset]:
        """What the group has durably committed; all there is for None. Raises `ApiError`.

        With `require_stable` a partition whose commit is being written is UNSTABLE_OFFSET_COMMIT.
        """
        self._check_open(group_id)
        return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(
        self, token: Token, group_id: str, partitions: Iterable[TopicPartition], moment: Moment
    ) -> list[Effect]:
        """Answered with `PartitionOutcomes` when the tombstones are durable, or with `Refusal`."""
        turn = Turn(moment)
        try:
            self._check_open(group_id)
            self._removals.delete_offsets(group_id, partitions, token, turn)
        except ApiError as refused:
            turn.reply(token, Refusal.of(refused))
        return turn.effects

    def delete_group(self, token: Token, group_id: str, moment: Moment) -> list[Effect]:
        """Answered with `GroupDeleted` when the tombstones are durable, or with `Refusal`."""
        turn = Turn(moment)
        try:
            self._check_open(group_id)
            self._removals.delete_group(group_id, token, turn)
        except ApiError as refused:
            turn.reply(token, Refusal.of(refused))
        return turn.effects

    def on_topic_deleted(self, topic: str, moment: Moment) -> list[Effect]:
        """A topic is gone: so are its offsets in all groups."""
        turn = Turn(moment)
        if self._closed is None:
            self._removals.on_topic_deleted(topic, turn)
        return turn.effects

    def list_groups(self) -> list[GroupListing]:
        """Every group that is not being removed. Raises `ApiError`."""
        self._check_open()
        return [list_group(group) for group in self._groups if group.state is not GroupState.DEAD]

    def describe(self, group_id: str) -> GroupDescription:
        """One group. Raises `ApiError`."""
        self._check_open(group_id)
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, _no_group(group_id))
        return describe_group(group)

    def on_appended(self, append_id: int, moment: Moment) -> list[Effect]:
        """The append is durable: its records are replayed, and whoever waited is answered.

        Appends come back in the order in which they were asked for; `ValueError` if not.
        """
        turn = Turn(moment)
        if self._closed is not None:
            return turn.effects
        entry = self._appends.finish(append_id, durable=True)
        for record in entry.records:
            self._image.replay(record)
        purpose = entry.purpose
        if isinstance(purpose, AssignmentStored):
            self._rebalances.on_stored(purpose, self._groups.get(purpose.group_id), turn)
        elif isinstance(purpose, StaticRestart):
            self._joins.on_restart_stored(purpose, turn)
        else:
            self._came_back(purpose, turn)
        for record in entry.records:
            if isinstance(record, GroupForgotten):
                self._groups.forget(record.group_id)
                self._groups.restore(record.group_id, turn)
        self._look_idle(entry, turn)
        return turn.effects

    def on_append_failed(self, append_id: int, refused: ApiError, moment: Moment) -> list[Effect]:
        """The append was not written and never will be: whoever waited is told why.

        An append of which nobody knows whether it is durable is no failed append: after that the
        log takes no more, and the coordinator has to be unloaded.
        """
        turn = Turn(moment)
        if self._closed is not None:
            return turn.effects
        entry = self._appends.finish(append_id, durable=False)
        purpose = entry.purpose
        if isinstance(purpose, AssignmentStored):
            group = self._groups.get(purpose.group_id)
            self._rebalances.on_not_stored(purpose, group, failed_group_write(refused), turn)
        elif isinstance(purpose, StaticRestart):
            group = self._groups.get(purpose.group_id)
            self._joins.on_restart_not_stored(purpose, group, failed_group_write(refused), turn)
        else:
            purpose.refused = refused
            self._came_back(purpose, turn)
        for record in entry.records:
            if isinstance(record, GroupForgotten):
                self._groups.revive(record.group_id)
        self._look_idle(entry, turn)
        return turn.effects

    def deadline_ms(self) -> int | None:
        """When `on_deadline` wants to be called next, on the clock of `Moment.now_ms`."""
        return self._deadlines.next_due_ms()

    def on_deadline(self, moment: Moment) -> list[Effect]:
        """Does what is due at `moment`; earlier calls do nothing."""
        turn = Turn(moment)
        for due in self._deadlines.pop_due(moment.now_ms):
            group = self._groups.get(due.group_id)
            if due in self._deadlines:
                continue  # What was due before it has set it anew.
            if due.kind == "expiry":
                self._removals.on_expiry_due(turn)
            elif group is None:
                continue
            elif due.kind == "session":
                self._liveness.on_session_due(group, due.member_id, turn)
            elif due.kind == "pending":
                self._liveness.on_pending_due(group, due.member_id, turn)
            elif due.kind == "join":
                self._rebalances.on_join_due(group, turn)
            else:
                self._rebalances.on_sync_due(group, turn)
        self._groups.drop_idle(turn)
        return turn.effects

    def _came_back(self, change: Change, turn: Turn) -> None:
        """Part of a commit or deletion is done; after the last part it is answered."""
        change.appends_left -= 1
        if change.appends_left == 0 and change.result is not None:
            refused = change.refused
            turn.reply(change.token, failed_offset_write(refused) if refused else change.result)

    def _look_idle(self, entry: InFlight, turn: Turn) -> None:
        turn.perhaps_idle += entry.group_ids
        self._groups.drop_idle(turn)

    def _group_of_member(self, group_id: str, member_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{_no_group(group_id)}, so {member_id!r} is no member; join without a member id",
            )
        if group.state is GroupState.DEAD:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"Group {group_id!r} is being removed; join again in a moment",
            )
        return group

    def _check_open(self, group_id: str | None = None, loading: ErrorCode | None = None) -> None:
        if self._closed is not None:
            is_loading = self._closed is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise ApiError(loading if loading is not None and is_loading else self._closed)
        if group_id is not None:
            check_group_id(group_id)


def check_group_id(group_id: str) -> None:
    """Raises `ApiError` for a name that no group has."""
    if not 0 < len(group_id) <= GROUP_ID_LENGTH_MAX:
        raise ApiError(
            ErrorCode.INVALID_GROUP_ID,
            f"A group id has 1 to {GROUP_ID_LENGTH_MAX} characters; this one has {len(group_id)}",
        )


def _no_group(group_id: str) -> str:
    return f"There is no group {group_id!r}"
