"""Random lives of a group, with a model beside it: whatever happens, what was promised holds.

Members join, leave, crash, restart and change their minds; appends are slow, fail, or are lost with
the coordinator; time passes. After every step: at most one owner per partition and generation,
generations only grow, what is committed is what was last acknowledged, and replaying the log gives
what is durable. At the end the members that live are left alone, and settle by themselves.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millrace_protocol.errors import ErrorCode
from millrace_server.group.group import GROUP_BYTES, Group
from millrace_server.group.records import GroupMetadataTombstone, encode_record
from millrace_server.group.requests import (
    DeleteGroupResult,
    LeavingMember,
    OffsetsResult,
    SyncGroupResult,
    TopicPartition,
)
from millrace_server.group.states import GroupState
from tests.server.group.members import PARTITIONS, Consumer
from tests.server.group.shell import SESSION_MS, Shell

TOPICS = st.sampled_from([("flights",), ("ports",), ("flights", "ports")])
ANY = st.integers(0, 1_000)
GROUP_TOMBSTONE = encode_record(GroupMetadataTombstone("g"))
"""With each of these in the log a life of the group ends, and its generations begin anew."""


class GroupMachine(RuleBasedStateMachine):
    """The group "g" of one coordinator, and the consumers that want to be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell()
        self.consumers: list[Consumer] = []
        self.names = 0
        self.seen = 0
        self.syncs: dict[int, tuple[str, int]] = {}
        self.owners: dict[tuple[int, int, str], str] = {}
        self.durable_generation = 0
        self.commits: dict[int, dict[TopicPartition, int]] = {}
        self.deletions: dict[int, list[TopicPartition]] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.next_offset = 1

    # What clients do

    @precondition(lambda self: len(self.living) < 5)
    @rule(topics=TOPICS, static=st.sampled_from([None, None, "x", "y"]))
    def begin(self, topics: tuple[str, ...], static: str | None) -> None:
        """A process begins; with an instance id in use it takes the place of its predecessor."""
        self.names += 1
        self.consumers.append(Consumer(f"p{self.names}", static, topics))

    @precondition(lambda self: self.living)
    @rule(which=ANY, steps=st.integers(1, 4))
    def carry_on(self, which: int, steps: int) -> None:
        consumer = self.living[which % len(self.living)]
        for _ in range(steps):
            self.step(consumer)

    @precondition(lambda self: self.living)
    @rule(rounds=st.integers(1, 8))
    def all_carry_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for consumer in self.living:
                self.step(consumer)

    @precondition(lambda self: self.living)
    @rule()
    def all_settle(self) -> None:
        """Enough rounds and time for members that only wait for each other."""
        for _ in range(4):
            self.all_carry_on(6)
            self.shell.advance(SESSION_MS // 3)

    @precondition(lambda self: self.living)
    @rule(which=ANY)
    def crash(self, which: int) -> None:
        self.living[which % len(self.living)].alive = False

    @precondition(lambda self: self.living)
    @rule(which=ANY, topics=TOPICS)
    def subscribe(self, which: int, topics: tuple[str, ...]) -> None:
        consumer = self.living[which % len(self.living)]
        if consumer.phase == "stable":
            consumer.subscribe(topics)

    @precondition(lambda self: self.living)
    @rule(which=ANY)
    def leave(self, which: int) -> None:
        consumer = self.living[which % len(self.living)]
        consumer.alive = False
        self.shell.leave(LeavingMember(consumer.member_id, consumer.instance_id))

    @precondition(lambda self: self.living)
    @rule(which=ANY, metadata=st.sampled_from(["", "note"]))
    def commit(self, which: int, metadata: str) -> None:
        consumer = self.living[which % len(self.living)]
        if consumer.phase == "stable" and consumer.owned:
            topic, number = consumer.owned[which % len(consumer.owned)].split("-")
            token = self.shell.commit(
                self.next_offset,
                topic=topic,
                partition=int(number),
                metadata=metadata,
                member_id=consumer.member_id,
                generation=consumer.generation,
                instance_id=consumer.instance_id,
            )
            self.commits[token] = {TopicPartition(topic, int(number)): self.next_offset}
            self.next_offset += 1

    @precondition(lambda self: self.group is not None or not self.living)
    @rule(
        what=st.sampled_from(["commit", "delete offset", "delete group"]),
        partition=st.integers(0, 2),
        offset=st.integers(0, 5),
    )
    def use_a_tool(self, what: str, partition: int, offset: int) -> None:
        """An operator sets an offset, backwards too, or deletes; members are in the way of it."""
        asked = TopicPartition("flights", partition)
        if what == "commit":
            token = self.shell.commit(offset, partition=partition)
            self.commits[token] = {asked: offset}
        elif what == "delete offset":
            self.deletions[self.shell.delete_offsets(asked)] = [asked]
        else:
            self.deletions[self.shell.delete_group()] = [
                TopicPartition(topic, number)
                for topic, count in PARTITIONS.items()
                for number in range(count)
            ]

    # What the world does

    @rule(duration_ms=st.sampled_from([100, SESSION_MS // 2, SESSION_MS, 70_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.shell.advance(duration_ms)

    @rule(hold=st.booleans())
    def the_disk_is_slow(self, hold: bool) -> None:
        self.shell.hold = hold
        if not hold:
            self.shell.make_durable()

    @precondition(lambda self: self.shell.held)
    @rule()
    def one_append_is_durable(self) -> None:
        self.shell.make_durable(1)

    @precondition(lambda self: self.shell.held)
    @rule(which=ANY)
    def an_append_fails(self, which: int) -> None:
        self.shell.fail_append(index=which % len(self.shell.held))

    @rule(compacted=st.booleans())
    def restart(self, compacted: bool) -> None:
        self.shell.restart(compacted=compacted)
        for consumer in self.consumers:
            consumer.disconnected()

    # What holds

    @invariant()
    def answers_keep_their_promises(self) -> None:
        """Acknowledged commits count, in their order; a partition has one owner in a generation."""
        replies = list(self.shell.replies.items())
        for token, answer in replies[self.seen :]:
            if isinstance(answer, OffsetsResult) and token in self.commits:
                assert answer.partitions[0].error is None
                self.committed.update(self.commits[token])
            elif isinstance(answer, DeleteGroupResult | OffsetsResult):
                outcomes = getattr(answer, "partitions", ())
                if all(outcome.error is None for outcome in outcomes):
                    for partition in self.deletions[token]:
                        self.committed.pop(partition, None)
            elif isinstance(answer, SyncGroupResult):
                identity, generation = self.syncs[token]
                life = self.shell.log[: self.shell.replied_at[token]].count(GROUP_TOMBSTONE)
                for each in answer.assignment.decode().split():
                    owner = self.owners.setdefault((life, generation, each), identity)
                    assert owner == identity, f"{each} has two owners in {generation}"
        self.seen = len(replies)
        found = {
            TopicPartition(topic, partition): each.offset
            for topic, partitions in self.shell.coordinator.image.of_group("g").items()
            for partition, each in partitions.items()
        }
        assert found == self.committed

    @invariant()
    def generations_only_grow(self) -> None:
        stored = self.shell.coordinator.image.groups.get("g")
        if stored is None:
            self.durable_generation = 0
            return
        assert stored.generation >= self.durable_generation
        self.durable_generation = stored.generation
        group = self.group
        assert group is None or group.generation >= stored.generation

    @invariant()
    def replay_gives_what_is_durable(self) -> None:
        image = self.shell.coordinator.image
        assert self.shell.image_of_log() == image
        assert self.shell.image_of_log(compacted=True) == image

    @invariant()
    def a_stable_group_is_the_one_in_the_log(self) -> None:
        group = self.group
        if group is None or self.shell.held or group.state is not GroupState.STABLE:
            return
        stored = self.shell.coordinator.image.groups["g"]
        assert (
            group.stored(
                {each.member_id: each.assignment for each in group.members.values()},
                wall_ms=stored.state_wall_ms,
            )
            == stored
        )
        wanted = {
            f"{topic}-{number}"
            for topic in group.subscribed_topics or ()
            for number in range(PARTITIONS[topic])
        }
        owned = [each for member in stored.members for each in member.assignment.decode().split()]
        assert sorted(owned) == sorted(wanted)

    @invariant()
    def the_books_are_in_order(self) -> None:
        group = self.group
        if group is not None:
            check_books(group)
        groups = self.shell.coordinator._groups
        assert self.shell.quota.held_bytes == sum(each._held_bytes for each in groups)
        assert self.shell.quota.pending_count == sum(len(each.pending_join) for each in groups)

    def teardown(self) -> None:
        """The living are left alone with a disk that works: they settle by themselves."""
        self.shell.hold = False
        self.shell.make_durable()
        for _ in range(60):
            for _ in range(4):
                for consumer in self.living:
                    self.step(consumer)
                self.answers_keep_their_promises()
            self.shell.advance(SESSION_MS // 3)
        living = self.living
        assert all(each.phase == "stable" for each in living)
        instances = [each.instance_id for each in living if each.instance_id]
        assert len(instances) == len(set(instances)), "an instance is one process"
        if living:
            described = self.shell.coordinator.describe("g")
            assert described.state is GroupState.STABLE
            assert {each.member_id for each in described.members} == {
                each.member_id for each in living
            }
            assert {each.generation for each in living} == {described.generation}
        self.a_stable_group_is_the_one_in_the_log()
        self.replay_gives_what_is_durable()
        assert self.shell.coordinator.pending_appends == 0

    # The parts

    @property
    def living(self) -> list[Consumer]:
        return [consumer for consumer in self.consumers if consumer.alive]

    @property
    def group(self) -> Group | None:
        return self.shell.coordinator._groups.get("g")

    def step(self, consumer: Consumer) -> None:
        before = consumer.token
        consumer.step(self.shell)
        if consumer.token is not None and consumer.token != before and consumer.phase == "syncing":
            self.syncs[consumer.token] = (consumer.identity, consumer.generation)


def check_books(group: Group) -> None:
    """The invariants that `Group` promises."""
    members = group.members
    assert (group.leader_id is None) == (not members)
    assert group.leader_id is None or group.leader_id in members
    assert group.pending_sync <= members.keys()
    assert not group.pending_join & members.keys()
    assert group.awaiting_join == sum(each.join_token is not None for each in members.values())
    assert all(member_id == member.member_id for member_id, member in members.items())
    assert group.static_members == {
        each.instance_id: each.member_id for each in members.values() if each.instance_id
    }
    assert group.metadata_bytes == sum(each.metadata_bytes for each in members.values())
    assert group._held_bytes == GROUP_BYTES + sum(each.held_bytes for each in members.values())
    if group.state is not GroupState.PREPARING_REBALANCE:
        assert group.awaiting_join == 0
    if group.state is not GroupState.COMPLETING_REBALANCE:
        assert all(each.sync_token is None for each in members.values())
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        assert not members
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        assert members
        assert group.protocol == "range"


def test_members_that_settle_share_everything_and_each_partition_once() -> None:
    machine = GroupMachine()
    for static in (None, "x", None):
        machine.consumers.append(Consumer("p", static, ("flights", "ports")))
    machine.teardown()
    owned = [each for consumer in machine.living for each in consumer.owned]
    assert sorted(owned) == ["flights-0", "flights-1", "flights-2", "ports-0", "ports-1"]
    assert machine.shell.heartbeat("unknown", 1) is ErrorCode.UNKNOWN_MEMBER_ID


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
