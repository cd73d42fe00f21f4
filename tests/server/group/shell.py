"""A shell around a coordinator for tests: a log in memory, virtual time, tokens that are counted.

Does what the real shell does, in the same order: appends in the order of the effects, replays what
is durable, hands out replies, calls `on_deadline` when it is due. Appends may be held back, or
fail. Fails a test in which a token is answered twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

from millrace_protocol.consumer_protocol import ConsumerSubscription, encode_subscription
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.shard import Append, Moment, UnknownRecord
from millrace_server.coordinator.writer import coordinator_error
from millrace_server.group.coordinator import GroupCoordinatorShard
from millrace_server.group.image import GroupsImage
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.records import GroupRecord, decode_record, encode_record
from millrace_server.group.requests import (
    GroupEffect,
    GroupResult,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    MemberIdRequired,
    OfferedProtocol,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
    SyncGroupResult,
    TopicPartition,
)
from millrace_server.group_config import GroupConfig

R = TypeVar("R")

WALL_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def reads(*topics: str, note: bytes = b"") -> bytes:
    """The metadata of a consumer that subscribes to topics; `note` is its user data."""
    return encode_subscription(ConsumerSubscription(topics, note))


def offers(*names: str, metadata: bytes | None = None) -> tuple[OfferedProtocol, ...]:
    """Protocols of these names, all with the same metadata."""
    return tuple(OfferedProtocol(name, metadata or reads("flights")) for name in names)


class Shell:
    """One coordinator with its log. Tokens are numbers; `replies` holds what came back."""

    def __init__(self, **config: Any) -> None:
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **config})
        self.log: list[tuple[bytes, bytes | None]] = []
        self.held: deque[Append[GroupRecord]] = deque()
        self.hold = False
        self.now_ms = 5_000
        self.replies: dict[int, GroupResult | ApiError] = {}
        self.replied_at: dict[int, int] = {}
        """How long the log was when the token was answered."""
        self.tokens = 0
        self._ids = 0
        self.quota = MemoryQuota(self.config)
        self.coordinator = self._new_coordinator()
        self.run(self.coordinator.on_loaded(self.moment))

    def _new_coordinator(self) -> GroupCoordinatorShard:
        return GroupCoordinatorShard(self.config, make_id=self._make_id, quota=self.quota)

    def _make_id(self) -> str:
        self._ids += 1
        return f"{self._ids:04d}"

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, WALL_MS + self.now_ms)

    # What happens to effects

    def run(self, effects: Iterable[GroupEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                self.held.append(effect)
            else:
                assert isinstance(effect.token, int)
                assert effect.token not in self.replies, "a token is answered twice"
                self.replies[effect.token] = effect.result
                self.replied_at[effect.token] = len(self.log)
        if not self.hold:
            self.make_durable()

    def make_durable(self, count: int = 1_000_000) -> None:
        """The oldest appends become durable, and come back in their order."""
        for _ in range(count):
            if not self.held:
                return
            append = self.held.popleft()
            self.log += [encode_record(record) for record in append.records]
            self.run(self.coordinator.on_appended(append.append_id, self.moment))

    def fail_append(self, code: ErrorCode = ErrorCode.DISK_FULL, *, index: int = 0) -> None:
        """One of the appends that are held back fails."""
        append = self.held[index]
        del self.held[index]
        refused = coordinator_error(ApiError(code, "as the test wants it"))
        self.run(self.coordinator.on_append_failed(append.append_id, refused, self.moment))

    def advance(self, duration_ms: int) -> None:
        """Time passes; every deadline on the way is met to the millisecond."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.coordinator.deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.run(self.coordinator.on_deadline(self.moment))
        self.now_ms = end_ms

    def restart(self, *, compacted: bool = False) -> None:
        """The process dies with everything that is not durable, and another one begins."""
        self.held.clear()
        self.quota = MemoryQuota(self.config)
        self.coordinator = self._new_coordinator()
        self.load(self.coordinator, compacted=compacted)
        self.run(self.coordinator.on_loaded(self.moment))

    def load(self, coordinator: GroupCoordinatorShard, *, compacted: bool = False) -> None:
        records = self.log
        if compacted:
            latest = {key: position for position, (key, _) in enumerate(self.log)}
            records = [self.log[position] for position in sorted(latest.values())]
        for key, value in records:
            record = decode_record(key, value)
            assert not isinstance(record, UnknownRecord)
            coordinator.replay(record)

    def image_of_log(self, *, compacted: bool = False) -> GroupsImage:
        coordinator = self._new_coordinator()
        self.load(coordinator, compacted=compacted)
        return coordinator.image

    # Requests; each returns its token

    def _token(self) -> int:
        self.tokens += 1
        return self.tokens

    def join(self, member_id: str = "", *, group: str = "g", **changes: Any) -> int:
        token = self._token()
        fields: dict[str, Any] = {
            "protocol_type": "consumer",
            "protocols": offers("range"),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "client_id": "c",
        }
        request = JoinGroup(group_id=group, member_id=member_id, **{**fields, **changes})
        self.run(self.coordinator.join(token, request, self.moment))
        return token

    def enter(self, **changes: Any) -> tuple[str, int]:
        """A new dynamic member: asks for its id and joins with it; returns id and token."""
        member_id = self.member_id(self.join(**changes))
        return member_id, self.join(member_id, **changes)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        **changes: Any,
    ) -> int:
        token = self._token()
        request = SyncGroup(
            group_id=group,
            member_id=member_id,
            generation=generation,
            assignments=tuple((assignments or {}).items()),
            **changes,
        )
        self.run(self.coordinator.sync(token, request, self.moment))
        return token

    def heartbeat(
        self,
        member_id: str,
        generation: int,
        *,
        group: str = "g",
        instance_id: str | None = None,
    ) -> ErrorCode:
        """The code that the member hears; NONE when all is well."""
        request = Heartbeat(
            group_id=group, member_id=member_id, generation=generation, instance_id=instance_id
        )
        try:
            self.coordinator.heartbeat(request, self.moment)
        except ApiError as refused:
            return refused.code
        return ErrorCode.NONE

    def leave(self, *members: LeavingMember, group: str = "g") -> int:
        token = self._token()
        self.run(
            self.coordinator.leave(token, LeaveGroup(group_id=group, members=members), self.moment)
        )
        return token

    def commit(
        self,
        offset: int,
        *,
        group: str = "g",
        topic: str = "flights",
        partition: int = 0,
        metadata: str = "",
        **identity: Any,
    ) -> int:
        wanted = OffsetToCommit(topic, partition, offset, metadata=metadata)
        return self.commit_all([wanted], group=group, **identity)

    def commit_all(
        self, wanted: Iterable[OffsetToCommit], *, group: str = "g", **identity: Any
    ) -> int:
        token = self._token()
        request = OffsetCommit(group_id=group, offsets=tuple(wanted), **identity)
        self.run(self.coordinator.commit(token, request, self.moment))
        return token

    def delete_group(self, group: str = "g") -> int:
        token = self._token()
        self.run(self.coordinator.delete_group(token, group, self.moment))
        return token

    def delete_offsets(self, *partitions: TopicPartition, group: str = "g") -> int:
        token = self._token()
        self.run(self.coordinator.delete_offsets(token, group, partitions, self.moment))
        return token

    # Answers

    def waits(self, token: int) -> bool:
        return token not in self.replies

    def result(self, token: int, kind: type[R]) -> R:
        answer = self.replies[token]
        assert isinstance(answer, kind), answer
        return answer

    def joined(self, token: int) -> JoinGroupResult:
        return self.result(token, JoinGroupResult)

    def assignment(self, token: int) -> bytes:
        return self.result(token, SyncGroupResult).assignment

    def error(self, token: int, code: ErrorCode) -> ApiError:
        error = self.result(token, ApiError)
        assert error.code is code, error
        return error

    def member_id(self, token: int) -> str:
        """The id that a new member has to join again with."""
        return self.result(token, MemberIdRequired).member_id

    def code(self, token: int) -> ErrorCode:
        """The code of a reply: of the error, or of the only partition."""
        answer = self.replies[token]
        if isinstance(answer, ApiError):
            return answer.code
        partitions = getattr(answer, "partitions", ())
        if not partitions:
            return ErrorCode.NONE
        (outcome,) = partitions
        return outcome.error.code if outcome.error else ErrorCode.NONE

    def committed(self, *, group: str = "g", topic: str = "flights", partition: int = 0) -> int:
        """The durable offset, -1 for none."""
        asked = [TopicPartition(topic, partition)]
        (found,) = self.coordinator.fetch_offsets(group, asked)
        return -1 if found.committed is None else found.committed.offset

    # Groups that are ready

    def stable(self, count: int, **changes: Any) -> list[str]:
        """A stable group of that many members, each assigned its own id; the first leads."""
        members: list[str] = []
        tokens: dict[str, int] = {}
        for _ in range(count):
            member_id, token = self.enter(**changes)
            for earlier in members:
                tokens[earlier] = self.join(earlier, **changes)
            members.append(member_id)
            tokens[member_id] = token
        generation = self.joined(tokens[members[0]]).generation
        group = changes.get("group", "g")
        self.sync(members[0], generation, {each: each.encode() for each in members}, group=group)
        for member_id in members[1:]:
            token = self.sync(member_id, generation, group=group)
            assert self.assignment(token) == member_id.encode()
        return members

    def generation(self, group: str = "g") -> int:
        return self.coordinator.describe(group).generation

    def state(self, group: str = "g") -> str:
        return self.coordinator.describe(group).state.value
