"""The state of a cluster: fenced brokers, and what is wrong with partitions."""

from __future__ import annotations

import uuid

from millrace.admin import PartitionDescription, TopicDescription
from millrace.brokers import (
    BrokerDescription,
    ClusterDescription,
    QuorumDescription,
    QuorumReplica,
)
from millrace_cli.cluster_state import ClusterState, Fault, as_json, cluster_state, under_replicated

DIRECTORY = uuid.UUID(int=1)


def topic(
    name: str, *partitions: tuple[int | None, tuple[int, ...], tuple[int, ...]]
) -> TopicDescription:
    """Each partition is its leader, its replicas, and those in sync."""
    described = (
        PartitionDescription(number, leader, 0, replicas, isr)
        for number, (leader, replicas, isr) in enumerate(partitions)
    )
    return TopicDescription(name, uuid.UUID(int=2), False, tuple(described))


def quorum(leader: int | None, *ends: int | None) -> QuorumDescription:
    replicas = tuple(
        QuorumReplica(node_id, DIRECTORY, True, end, None, None)
        for node_id, end in enumerate(ends, 1)
    )
    return QuorumDescription(leader, 4, 90, replicas)


def found(
    brokers: tuple[int, ...], state: QuorumDescription, *topics: TopicDescription, min_isr: int = 2
) -> ClusterState:
    described = ClusterDescription(
        "c", 1, tuple(BrokerDescription(n, "h", 9000 + n, {1: "a"}.get(n)) for n in brokers)
    )
    names = dict.fromkeys(under_replicated(topics), min_isr)
    return cluster_state(described, state, topics, min_isr=names)


def test_a_cluster_with_all_replicas_in_sync_is_healthy() -> None:
    whole = topic("t", (1, (1, 2, 3), (3, 2, 1)), (2, (2, 3, 1), (2, 3, 1)))
    now = found((1, 2, 3), quorum(1, 100, 100, 90), whole, topic("one", (3, (3,), (3,))))
    assert now.problems == []
    assert now.unhealthy == ()
    assert [(b.leaders, b.in_sync, b.replicas) for b in now.brokers] == [
        *((1, 2, 2), (1, 2, 2), (1, 3, 3))
    ]
    assert [b.rack for b in now.brokers] == ["a", None, None]
    assert [b.address for b in now.brokers] == ["h:9001", "h:9002", "h:9003"]
    assert [now.quorum.lag(each) for each in now.quorum.replicas] == [0, 0, 10]


def test_a_broker_out_of_service_is_known_from_its_replicas_and_its_vote() -> None:
    now = found((1,), quorum(1, 100, None), topic("t", (1, (1, 3), (1,))), min_isr=1)
    assert [(b.node_id, b.is_fenced) for b in now.brokers] == [(1, False), (2, True), (3, True)]
    assert now.problems == ["fenced: broker 2, 3", "1 at min ISR", "1 under-replicated"]
    assert now.quorum.lag(now.quorum.replicas[1]) is None


def test_without_a_leader_of_the_quorum_there_is_no_lag_and_no_health() -> None:
    now = found((1, 2), quorum(None, 100, 100))
    assert now.problems == ["no active controller"]
    assert [now.quorum.lag(each) for each in now.quorum.replicas] == [None, None]


def test_a_partition_has_its_worst_fault_first_and_the_worst_partition_stands_first() -> None:
    now = found(
        (1, 2, 3),
        quorum(1, 1, 1, 1),
        topic("a", (1, (1, 2, 3, 4), (1, 2, 3)), (1, (1, 2, 3), (1, 2)), (1, (1, 2, 3), (1,))),
        topic("b", (None, (3, 4), ())),
    )
    under = Fault.UNDER_REPLICATED
    assert [(each.where, each.faults) for each in now.unhealthy] == [
        (("b", 0), (Fault.WITHOUT_LEADER, under)),
        (("a", 2), (Fault.BELOW_MIN_ISR, under)),
        (("a", 1), (Fault.AT_MIN_ISR, under)),
        (("a", 0), (under,)),
    ]
    assert now.problems == [
        "fenced: broker 4",
        *("1 without leader", "1 below min ISR", "1 at min ISR", "4 under-replicated"),
    ]
    assert as_json(now)["partitions"] == {
        "count": 4,
        "without_leader": 1,
        "below_min_isr": 1,
        "at_min_isr": 1,
        "under_replicated": 4,
    }


def test_all_replicas_in_sync_is_no_fault_even_if_they_are_as_few_as_must_be() -> None:
    assert found((1, 2), quorum(1, 1, 1), topic("t", (1, (1, 2), (1, 2)))).problems == []
