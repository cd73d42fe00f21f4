"""The same groups given to the assignors of kafka-python and aiokafka, which others wrote.

They agree where all three mean the same. Where a peer is not compared, the test that leaves it out
says what it does and why that is not Kafka's rule.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from aiokafka.coordinator.assignors.roundrobin import (
    RoundRobinPartitionAssignor as AioRoundRobinAssignor,
)
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import assume, given
from hypothesis import strategies as st

from millrace.assignors import (
    CooperativeStickyAssignor,
    Placement,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
)
from millrace.records import TopicPartition
from millrace_protocol.consumer_protocol import by_topic
from tests.clients.assignors.groups import (
    UNHURRIED,
    Group,
    after,
    groups,
    helpful_moves,
    owners,
    sizes,
    telling,
)

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.cooperative_sticky import (
        CooperativeStickyAssignor as PyCooperativeStickyAssignor,
    )
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky import partition_movements
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription


class Cluster:
    """As much of a peer's view of the cluster as its assignors look at."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = {topic: count for topic, count in counts.items() if count}

    def topics(self) -> set[str]:
        return set(self._counts)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        count = self._counts.get(topic)
        return None if count is None else set(range(count))


@dataclasses.dataclass(frozen=True)
class PyMember:
    """A member as kafka-python's leader is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


def py_members(group: Group) -> list[PyMember]:
    return [
        PyMember(
            member,
            subscription.group_instance_id,
            ConsumerProtocolSubscription(
                version=2,
                topics=list(subscription.topics),
                user_data=StickyAssignorUserData(
                    [
                        (owned.topic, list(owned.partitions))
                        for owned in by_topic(subscription.owned)
                    ],
                    subscription.generation,
                )
                if subscription.generation >= 0
                else b"",
                owned_partitions=[
                    ConsumerProtocolSubscription.TopicPartition(
                        topic=owned.topic, partitions=list(owned.partitions)
                    )
                    for owned in by_topic(subscription.owned)
                ],
                generation_id=subscription.generation,
            ),
        )
        for member, subscription in group.members.items()
    ]


def py_assign(assignor: Any, group: Group, members: Iterable[PyMember] | None = None) -> Placement:
    given = assignor.assign(Cluster(group.counts), list(members or py_members(group)))
    return {
        member: sorted(TopicPartition(*partition) for partition in assignment.partitions())
        for member, assignment in given.items()
    }


@st.composite
def static_groups(draw: st.DrawFn, *, alike: bool | None = None) -> Group:
    """Some members are static, with instance ids in another order than their member ids."""
    group = draw(groups(alike=alike))
    ids = draw(st.permutations([f"i{number}" for number in range(len(group.members))]))
    return Group(
        group.counts,
        {
            member: dataclasses.replace(
                subscription, group_instance_id=draw(st.sampled_from([None, name]))
            )
            for (member, subscription), name in zip(group.members.items(), ids, strict=True)
        },
    )


def statics_first(group: Group) -> list[PyMember]:
    """Members in the only order in which kafka-python does not lose any.

    It groups them into static and dynamic ones with `itertools.groupby`, which starts a new group
    at every change, and keeps the last of each.
    """
    return sorted(py_members(group), key=lambda member: member.group_instance_id is None)


@UNHURRIED
@given(static_groups())
def test_range_is_kafka_pythons(group: Group) -> None:
    ours = RangeAssignor().assign(group.counts, group.members)
    assert py_assign(RangePartitionAssignor, group, statics_first(group)) == ours


@UNHURRIED
@given(static_groups(alike=True))
def test_roundrobin_of_equal_subscriptions_is_kafka_pythons(group: Group) -> None:
    """Of different ones it raises KeyError: passing a member over, it takes a pair for an id."""
    ours = RoundRobinAssignor().assign(group.counts, group.members)
    assert py_assign(RoundRobinPartitionAssignor, group, statics_first(group)) == ours


@UNHURRIED
@given(groups())
def test_roundrobin_is_aiokafkas(group: Group) -> None:
    """aiokafka knows no static members."""
    members = {
        member: ConsumerProtocolMemberMetadata(0, list(subscription.topics), b"")
        for member, subscription in group.members.items()
    }
    theirs = AioRoundRobinAssignor.assign(Cluster(group.counts), members)
    ours = RoundRobinAssignor().assign(group.counts, group.members)
    assert ours == {
        member: [TopicPartition(*partition) for partition in assignment.partitions()]
        for member, assignment in theirs.items()
    }


@pytest.fixture(autouse=True)
def quiet_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps out of the output that topics do not exist."""
    for module in ("range", "roundrobin", "sticky.sticky_assignor"):
        for package in ("kafka", "aiokafka"):
            logger = logging.getLogger(f"{package}.coordinator.assignors.{module}")
            monkeypatch.setattr(logger, "disabled", True)


@pytest.fixture(autouse=True)
def first_of_the_swaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of partitions that could be swapped back kafka-python takes one by its hash; here, the first.

    Any is as good. Hashes change from run to run, and this has to come out the same.
    """

    class InOrder(dict[Any, None]):
        add = dict.setdefault
        remove = dict.__delitem__

    original = partition_movements.PartitionMovements.__init__

    def init(self: Any) -> None:
        original(self)
        by_pair = partition_movements.defaultdict
        self.partition_movements_by_topic = by_pair(lambda: by_pair(InOrder))

    monkeypatch.setattr(partition_movements.PartitionMovements, "__init__", init)


def differing(group: Group) -> bool:
    """Whether some existing topic is one member's and not another's.

    For Kafka, subscriptions that differ in a topic that does not exist are different ones too.
    kafka-python takes them for equal and then looks for what to move in another order.
    """
    existing = {topic for topic, count in group.counts.items() if count}
    return (
        len(
            {
                frozenset(existing.intersection(subscription.topics))
                for subscription in group.members.values()
            }
        )
        > 1
    )


def sticky(group: Group) -> Placement:
    assignor = StickyAssignor()
    return assignor.assign(group.counts, telling(assignor, group.members))


@UNHURRIED
@given(groups())
def test_sticky_of_a_new_group_is_kafka_pythons(group: Group) -> None:
    assert py_assign(StickyPartitionAssignor(), group) == sticky(group)


@st.composite
def settled_groups(draw: st.DrawFn, *, alike: bool | None = None) -> Group:
    """Members that own partitions, each its own, of one generation; most even, some not at all."""
    group = draw(groups(alike=alike))
    wanting = {
        partition: [
            m for m, subscription in group.members.items() if partition.topic in subscription.topics
        ]
        for partition in group.placeable
    }
    placement: Placement = {member: [] for member in group.members}
    if draw(st.booleans()):
        placement = sticky(group)
    else:
        for partition, takers in wanting.items():
            placement[draw(st.sampled_from(takers))].append(partition)
    group = after(group, placement, generation=3)
    # Since then members went, came, and changed their minds.
    topics = st.lists(st.sampled_from(sorted(group.counts)), unique=True).map(tuple)
    members: dict[str, Subscription] = {}
    for member, subscription in group.members.items():
        match draw(st.sampled_from(["stays", "stays", "stays", "goes", "is new", "changes"])):
            case "stays":
                members[member] = subscription
            case "is new":
                members[member] = Subscription(subscription.topics)
            case "changes" if not alike:
                members[member] = dataclasses.replace(subscription, topics=draw(topics))
    assume(members)
    return Group(group.counts, members)


@UNHURRIED
@given(settled_groups())
def test_sticky_of_different_subscriptions_is_kafka_pythons(group: Group) -> None:
    assume(differing(group))
    assert py_assign(StickyPartitionAssignor(), group) == sticky(group)


@UNHURRIED
@given(settled_groups(alike=True))
def test_sticky_of_equal_subscriptions_moves_no_more_than_kafka_python(group: Group) -> None:
    """It has no quotas, as Kafka has (KAFKA-9987): other partitions move, to shares as even."""
    ours, theirs = sticky(group), py_assign(StickyPartitionAssignor(), group)
    assert sorted(sizes(ours).values()) == sorted(sizes(theirs).values())

    def moved(placement: Placement) -> int:
        return sum(
            len(set(subscription.owned) - set(placement[m]))
            for m, subscription in group.members.items()
        )

    assert moved(ours) <= moved(theirs)


@UNHURRIED
@given(settled_groups())
def test_cooperative_sticky_of_different_subscriptions_is_kafka_pythons(group: Group) -> None:
    assume(differing(group))
    ours = CooperativeStickyAssignor().assign(group.counts, group.members)
    assert py_assign(PyCooperativeStickyAssignor(), group) == ours


@UNHURRIED
@given(settled_groups(alike=True))
def test_cooperative_sticky_withholds_no_more_than_kafka_python(group: Group) -> None:
    ours = CooperativeStickyAssignor().assign(group.counts, group.members)
    theirs = py_assign(PyCooperativeStickyAssignor(), group)
    assert len(owners(ours)) >= len(owners(theirs))


def test_a_swap_undone_at_both_ends_is_kafka_pythons() -> None:
    """Two partitions of a topic meet half way: both moved before, and both go back.

    Kafka's own clients move only one of the two, and the member that has too many keeps them.
    """

    def subscription(topics: str, owned: str, generation: int) -> Subscription:
        given = tuple(TopicPartition(word[0], int(word[1])) for word in owned.split())
        return Subscription(tuple(topics), given, generation)

    group = Group(
        {"a": 4, "b": 5, "c": 2, "d": 4},
        {
            "m0": subscription("acd", "a1 a2 d0 d1 d2 d3", 2),
            "m1": subscription("abcd", "a0 b1 b3 c0", 1),
            "m2": subscription("bc", "b0 b2 b4", 2),
            "m3": subscription("abcd", "", 2),
            "m4": subscription("d", "", 1),
        },
    )
    ours = sticky(group)
    assert py_assign(StickyPartitionAssignor(), group) == ours
    assert helpful_moves(group, ours) == []
