"""Random lives of groups: real memberships and a real coordinator's core, on one virtual clock.

Nothing is simulated but what lies between them: answers are delayed, lost with their connection, or
never come because a member died.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millrace._broker_error import broker_error
from millrace._group.effects import (
    Assign,
    Effect,
    Emit,
    Fail,
    HandOver,
    Heartbeat,
    Join,
    Leave,
    Left,
    RefreshMetadata,
    Revoke,
    Sync,
)
from millrace._group.member_identity import MemberConfig
from millrace._group.member_states import MemberState, Step
from millrace._group.membership import Membership
from millrace.assignors import chosen, decode_assigned
from millrace.errors import ConnectionLost, InstanceFenced, MillraceError
from millrace.records import TopicPartition
from millrace_protocol.messages.group_membership import (
    JoinedMember,
    JoinGroupResponse,
    SyncGroupResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.group.requests import (
    JoinGroupResult,
    LeavingMember,
    MemberIdRequired,
    OfferedProtocol,
    SyncGroupResult,
)
from tests.server.group.shell import Shell

TOPICS = ("flights", "ports")
SUBSCRIBED = st.sampled_from([frozenset({"flights"}), frozenset(TOPICS), frozenset({"ports"})])
SLOTS = 4
SESSION_MS = 10_000
REBALANCE_MS = 20_000


class Client:
    """A membership with the tasks of its shell as lists: answers that wait, and hand-overs."""

    def __init__(self, world: World, name: str, assignors: list[str], *, is_static: bool) -> None:
        self.world = world
        self.name = name
        self.cooperative = assignors == ["cooperative-sticky"]
        terms = MemberConfig(
            "g",
            chosen(assignors),
            SESSION_MS,
            REBALANCE_MS,
            3_000,
            name if is_static else None,
        )
        self.membership = Membership(terms, rng=random.Random(7))
        self.waiting: list[tuple[Any, Any]] = []
        self.handing: HandOver | None = None
        self.reading: set[TopicPartition] = set()
        self.error: MillraceError | None = None
        self.has_left = False

    @property
    def is_settled(self) -> bool:
        wanted = MemberState.STABLE if self.membership.topics else MemberState.UNJOINED
        return self.membership.state is wanted and not self.waiting and self.handing is None

    def obey(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Revoke | Assign):
                assert self.handing is None, "two hand-overs at once"
                self.handing = effect
                assert isinstance(effect, Assign) or self.keeps_what_it_may(effect)
                if isinstance(effect, Assign):
                    assert not effect.added & self.reading
                    assert effect.assigned == effect.added | self.reading
                    self.reading |= effect.added
            elif isinstance(effect, Fail):
                self.error = effect.error
                self.waiting.clear()
                self.handing = None
                self.reading.clear()
            elif isinstance(effect, Left):
                self.has_left = True
                assert not self.reading
            elif not isinstance(effect, Emit):
                self.waiting.append((effect, self.world.ask(effect)))

    def keeps_what_it_may(self, revoke: Revoke) -> bool:
        """What stays is never revoked: what is revoked goes to another member, or is not wanted."""
        if not self.cooperative or revoke.lost is not None or not self.membership.topics:
            return True
        if self.membership._after is Step.TAKE_OVER:
            return not revoke.partitions & self.membership._owned.assigned
        return all(where.topic not in self.membership.topics for where in revoke.partitions)

    def hand_over(self) -> None:
        done, self.handing = self.handing, None
        if isinstance(done, Revoke):
            assert done.partitions <= self.reading
            self.reading -= done.partitions
        assert done is not None
        self.obey(self.membership.on_handed_over(done, self.world.now_ms))

    def deliver(self, index: int) -> None:
        effect, outcome = self.waiting.pop(index)
        member, now_ms = self.membership, self.world.now_ms
        answer = self.world.answer(outcome)
        if isinstance(answer, MillraceError):
            self.obey(member.on_failed(effect, answer, now_ms))
        elif isinstance(effect, Join):
            self.obey(member.on_joined(effect, answer, now_ms))
        elif isinstance(effect, Sync):
            self.obey(member.on_synced(effect, answer, now_ms))
        elif isinstance(effect, RefreshMetadata):
            counts, assigned = answer
            self.obey(member.on_refreshed(effect, counts, now_ms, assigned=assigned))
        elif isinstance(effect, Heartbeat):
            self.obey(member.on_heard(effect, now_ms))
        else:
            self.obey(member.on_left(effect, now_ms))

    def lose_connection(self) -> None:
        waiting, self.waiting = self.waiting, []
        for effect, _ in waiting:
            self.obey(self.membership.on_failed(effect, ConnectionLost("cut"), self.world.now_ms))

    def ready(self) -> list[int]:
        """The answers that have come."""
        return [i for i, (_, outcome) in enumerate(self.waiting) if self.world.has_come(outcome)]


class World:
    """The coordinator, the topics and the clock."""

    def __init__(self) -> None:
        self.shell = Shell()
        self.counts = {"flights": 4, "ports": 2}

    @property
    def now_ms(self) -> int:
        return self.shell.now_ms

    def ask(self, effect: Effect) -> Any:
        """What comes of a request: a token, or an answer that is there at once."""
        shell = self.shell
        if isinstance(effect, Join):
            asked = effect.request
            return shell.join(
                asked.member_id,
                session_timeout_ms=asked.session_timeout_ms,
                rebalance_timeout_ms=asked.rebalance_timeout_ms,
                instance_id=asked.instance_id,
                protocols=tuple(OfferedProtocol(p.name, p.metadata) for p in asked.protocols),
            )
        if isinstance(effect, Sync):
            sync = effect.request
            return shell.sync(
                sync.member_id,
                sync.generation,
                {each.member_id: each.assignment for each in sync.assignments},
                instance_id=sync.instance_id,
                protocol=sync.protocol,
            )
        if isinstance(effect, Heartbeat):
            beat = effect.request
            code = shell.heartbeat(beat.member_id, beat.generation, instance_id=beat.instance_id)
            return broker_error(code, None) if code else True
        if isinstance(effect, Leave):
            (leaving,) = effect.request.members
            return shell.leave(LeavingMember(leaving.member_id, leaving.instance_id))
        assert isinstance(effect, RefreshMetadata)
        return effect

    def _assigned(self) -> set[TopicPartition]:
        members = self.shell.coordinator.describe("g").members
        return {where for member in members for where in decode_assigned(member.assignment)}

    def has_come(self, outcome: Any) -> bool:
        is_token = isinstance(outcome, int) and not isinstance(outcome, bool)
        return not is_token or not self.shell.waits(outcome)

    def answer(self, outcome: Any) -> Any:
        if isinstance(outcome, RefreshMetadata):
            # The cache of topics is one, and is read when it has been refreshed.
            return dict(self.counts), self._assigned() if outcome.with_assignments else None
        if isinstance(outcome, bool) or not isinstance(outcome, int):
            return outcome
        result = self.shell.replies[outcome]
        if isinstance(result, ApiError):
            if isinstance(result, MemberIdRequired):
                return JoinGroupResponse(-1, None, None, "", result.member_id, False, ())
            return broker_error(result.code, result.message)
        if isinstance(result, JoinGroupResult):
            return JoinGroupResponse(
                result.generation,
                result.protocol_type,
                result.protocol,
                result.leader_id,
                result.member_id,
                result.skip_assignment,
                tuple(JoinedMember(*each) for each in result.members),
            )
        if isinstance(result, SyncGroupResult):
            return SyncGroupResponse(result.protocol_type, result.protocol, result.assignment)
        return result


class GroupMachine(RuleBasedStateMachine):
    """Clients come, go, die, lose touch and change their minds, and brokers restart."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.clients: dict[int, Client] = {}
        self.assignors = ["range"]
        self.is_static = False

    @initialize(
        assignors=st.sampled_from(
            [["range"], ["sticky"], ["cooperative-sticky"], ["range", "cooperative-sticky"]]
        ),
        is_static=st.booleans(),
    )
    def found(self, assignors: list[str], is_static: bool) -> None:
        self.assignors, self.is_static = assignors, is_static

    def _client(self, slot: int) -> Client | None:
        return self.clients.get(slot)

    @rule(slot=st.integers(0, SLOTS - 1), topics=SUBSCRIBED)
    def subscribe(self, slot: int, topics: frozenset[str]) -> None:
        """A consumer starts, or wants something else."""
        client = self._client(slot)
        if client is None:
            client = Client(self.world, f"c{slot}", self.assignors, is_static=self.is_static)
            self.clients[slot] = client
        client.obey(client.membership.subscribe(topics, self.world.now_ms))

    @rule(slot=st.integers(0, SLOTS - 1))
    def leave(self, slot: int) -> None:
        client = self._client(slot)
        if client is not None:
            client.obey(client.membership.leave("enough", self.world.now_ms))

    @rule(slot=st.integers(0, SLOTS - 1))
    def die(self, slot: int) -> None:
        self.clients.pop(slot, None)

    @precondition(lambda self: self.is_static)
    @rule(slot=st.integers(0, SLOTS - 1), topics=SUBSCRIBED)
    def restart(self, slot: int, topics: frozenset[str]) -> None:
        """A static member's process dies, and another begins at once."""
        if self.clients.pop(slot, None) is not None:
            self.subscribe(slot, topics)

    @rule(slot=st.integers(0, SLOTS - 1))
    def lose_connection(self, slot: int) -> None:
        client = self._client(slot)
        if client is not None:
            client.lose_connection()

    @rule()
    def restart_broker(self) -> None:
        self.world.shell.restart()
        for client in self.clients.values():
            client.lose_connection()

    @rule(topic=st.sampled_from(TOPICS))
    def widen(self, topic: str) -> None:
        """A topic gets another partition, and all members learn of it."""
        if self.world.counts[topic] < 8:
            self.world.counts[topic] += 1
        for client in self.clients.values():
            counts = dict(self.world.counts)
            client.obey(client.membership.on_counts(counts, self.world.now_ms))

    @rule(slot=st.integers(0, SLOTS - 1), index=st.integers(0, 3))
    def deliver(self, slot: int, index: int) -> None:
        client = self._client(slot)
        if client is not None and (ready := client.ready()):
            client.deliver(ready[index % len(ready)])

    @rule(slot=st.integers(0, SLOTS - 1))
    def hand_over(self, slot: int) -> None:
        client = self._client(slot)
        if client is not None and client.handing is not None:
            client.hand_over()

    @rule(duration_ms=st.sampled_from([1, 100, 3_000, 9_000, 25_000]))
    def wait(self, duration_ms: int) -> None:
        """Time passes without any response."""
        self.world.shell.advance(duration_ms)
        for client in self.clients.values():
            client.obey(client.membership.on_deadline(self.world.now_ms))

    @rule()
    def quieten(self) -> None:
        """Everything is delivered, and all is well."""
        for _ in range(300):
            busy = False
            for client in list(self.clients.values()):
                while ready := client.ready():
                    client.deliver(ready[0])
                    busy = True
                if client.handing is not None:
                    client.hand_over()
                    busy = True
            if not busy:
                if self._is_quiet():
                    break
                self._next_moment()
        self._check_quiet()

    def _is_quiet(self) -> bool:
        live = [c for c in self.clients.values() if c.error is None]
        reading = [c for c in live if c.membership.topics]
        if not all(client.is_settled for client in live):
            return False
        if not self._exists():
            return not reading
        group = self.world.shell.coordinator.describe("g")
        return (
            len(group.members) == len(reading)
            and group.state.value in ("Stable", "Empty")
            and all(c.membership.identity.generation == group.generation for c in reading)
        )

    def _exists(self) -> bool:
        names = [listing.group_id for listing in self.world.shell.coordinator.list_groups()]
        return "g" in names

    def _next_moment(self) -> None:
        due = [c.membership.deadline_ms() for c in self.clients.values()]
        due.append(self.world.shell.coordinator.deadline_ms())
        next_ms = min((each for each in due if each is not None), default=self.world.now_ms + 1)
        self.wait(max(1, next_ms - self.world.now_ms))

    def _check_quiet(self) -> None:
        for client in self.clients.values():
            # A member whose name another process took is told, and no other member fails.
            assert client.error is None or isinstance(client.error, InstanceFenced), client.error
        members = [c for c in self.clients.values() if c.error is None and c.membership.topics]
        assert all(c.membership.state is MemberState.STABLE for c in members), [
            (c.name, c.membership.state, c.waiting, c.handing) for c in self.clients.values()
        ]
        assert len({c.membership.identity.generation for c in members}) <= 1
        wanted = {
            TopicPartition(topic, partition)
            for client in members
            for topic in client.membership.topics
            for partition in range(self.world.counts[topic])
        }
        read = [where for client in members for where in client.reading]
        assert len(read) == len(set(read))
        assert set(read) == wanted
        for client in members:
            assert all(where.topic in client.membership.topics for where in client.reading)

    @invariant()
    def no_partition_is_read_by_two_members(self) -> None:
        if not self._exists():
            return
        group = self.world.shell.coordinator.describe("g")
        known = {member.member_id for member in group.members}
        read: list[TopicPartition] = []
        for client in self.clients.values():
            place = client.membership.identity
            if place.generation == group.generation and place.member_id in known:
                read += client.reading
        assert len(read) == len(set(read))

    @invariant()
    def what_is_read_is_what_is_held(self) -> None:
        for client in self.clients.values():
            assert client.reading == client.membership.held

    def teardown(self) -> None:
        self.quieten()


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
