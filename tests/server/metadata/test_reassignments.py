"""Reassignments: replicas move, and a partition always has one that is in sync."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.isr_changes import IsrChange, change_isrs
from millrace_server.metadata.reassignments import Reassignment, plan_retirement, reassign
from millrace_server.metadata.topics import TopicChanges, TopicDefaults
from tests.server.metadata.clusters import (
    TOPIC,
    after,
    cluster,
    inactive,
    partition,
    seen,
    with_topic,
)

MIN_2 = {"min.insync.replicas": "2", "durability": "fsync"}
MIN_1 = {"min.insync.replicas": "1", "durability": "fsync"}


def moved(image: ClusterImage, *replicas: int) -> ClusterImage:
    decided = reassign(image, {}, [Reassignment("t", 0, replicas)], may_replace=True)
    assert decided.refused == [None]
    return after(image, decided.records)


def in_sync(image: ClusterImage, *isr: int) -> ClusterImage:
    """The image behind the leader's request for this ISR."""
    known = image.topics["t"].partitions[0]
    leader = image.brokers[known.leader]
    members = tuple((member, -1) for member in isr)
    change = IsrChange(TOPIC, 0, known.leader_epoch, known.partition_epoch, members)
    decided = change_isrs(
        image, {}, [change], broker_id=leader.broker_id, broker_epoch=leader.epoch
    )
    return after(image, decided.records)


def layout(image: ClusterImage) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Replicas, and those to add and to remove."""
    known = image.topics["t"].partitions[0]
    return known.replicas, known.adding, known.removing


def refusal(image: ClusterImage, *replicas: int, number: int = 0) -> tuple[ErrorCode, str]:
    decided = reassign(image, {}, [Reassignment("t", number, replicas)])
    (error,) = decided.refused
    assert error is not None
    assert decided.records == []
    return error.code, error.message


def test_old_replicas_stay_until_all_new_ones_are_in_sync() -> None:
    image = with_topic(cluster(1, 2, 3, 4), partition((1, 2), (1, 2)), configs=MIN_2)
    image = moved(image, 3, 4)
    assert layout(image) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert seen(image) == (1, (1, 2), ())
    image = in_sync(image, 1, 2, 3)
    assert layout(image) == ((3, 4, 1, 2), (3, 4), (1, 2))
    image = in_sync(image, 1, 2, 3, 4)
    assert layout(image) == ((3, 4), (), ())
    assert seen(image) == (3, (3, 4), ())


def test_a_leader_that_stays_takes_a_new_epoch_when_replicas_go() -> None:
    image = moved(with_topic(cluster(1, 2), partition((1, 2), (1, 2)), configs=MIN_1), 1)
    assert layout(image) == ((1,), (), ())
    found = image.topics["t"].partitions[0]
    assert (found.leader, found.leader_epoch) == (1, 6)


def test_a_new_order_is_a_new_preferred_leader() -> None:
    image = moved(with_topic(cluster(1, 2), partition((1, 2), (1, 2)), configs=MIN_1), 2, 1)
    assert layout(image) == ((2, 1), (), ())
    assert seen(image) == (1, (2, 1), ())


def test_a_reassignment_waits_rather_than_stop_acks_of_all() -> None:
    image = with_topic(cluster(1, 2, 3), partition((1, 2, 3), (1, 2)), configs=MIN_2)
    image = moved(image, 2, 3)
    assert layout(image) == ((2, 3, 1), (), (1,)), "without 1 only 2 is in sync"
    image = in_sync(image, 1, 2, 3)
    assert layout(image) == ((2, 3), (), ())


def test_a_reassignment_that_is_cancelled_leaves_the_old_replicas() -> None:
    image = moved(with_topic(cluster(1, 2, 3, 4), partition((1, 2), (1, 2)), configs=MIN_2), 3, 4)
    image = in_sync(image, 1, 2, 3)
    decided = reassign(image, {}, [Reassignment("t", 0, None)])
    image = after(image, decided.records)
    assert layout(image) == ((1, 2), (), ())
    assert seen(image) == (1, (1, 2), ())
    (error,) = reassign(image, {}, [Reassignment("t", 0, None)]).refused
    assert error is not None and error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_is_not_cancelled_when_no_old_replica_could_lead() -> None:
    image = moved(with_topic(cluster(1, 2, 3), partition((1,), (1,)), configs=MIN_1), 2, 3)
    image = in_sync(image, 1, 2)
    known = image.topics["t"].partitions[0]
    alone = with_topic(inactive(image, 1), replace(known, isr=(2,), leader=2), configs=MIN_1)
    (error,) = reassign(alone, {}, [Reassignment("t", 0, None)]).refused
    assert error is not None and "start their brokers, or wait" in error.message


def test_a_reassignment_is_replaced_only_if_it_may_be() -> None:
    image = moved(with_topic(cluster(1, 2, 3, 4), partition((1, 2), (1, 2)), configs=MIN_2), 3, 4)
    code, sentence = refusal(image, 3, 2)
    assert code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert "is being reassigned to brokers 3, 4; wait until that is done, cancel it" in sentence
    again = reassign(image, {}, [Reassignment("t", 0, (3, 4))])
    assert (again.refused, again.records) == ([None], []), "the same one again is no other"


def test_a_reassignment_that_changes_still_adds_what_is_not_in_sync() -> None:
    image = with_topic(cluster(1, 2, 3, 4), partition((1, 2), (1, 2)), configs=MIN_2)
    image = moved(moved(image, 3, 4), 3, 2)
    assert layout(image) == ((3, 2, 4, 1), (3,), (4, 1))


def test_more_replicas_bring_the_settings_that_all_must_read_alike() -> None:
    image = moved(with_topic(cluster(1, 2, 3), partition((1,), (1,))), 1, 2, 3)
    assert dict(image.topics["t"].configs) == MIN_1


@pytest.mark.parametrize(
    ("replicas", "says"),
    [
        ((), "name one broker at least"),
        ((1, 1), "each once"),
        ((1, 9), "Broker 9 is not there; the cluster has the brokers 1, 2, 3"),
        ((1,), "min.insync.replicas 2 and the replicas wanted are 1"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(replicas: tuple[int, ...], says: str) -> None:
    image = with_topic(cluster(1, 2, 3), partition((1, 2), (1, 2)), configs=MIN_2)
    code, message = refusal(image, *replicas)
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert says in message


def test_each_partition_is_decided_for_itself() -> None:
    image = with_topic(cluster(1, 2, 3), partition((1, 2), (1, 2)), configs=MIN_2)
    wanted = [
        Reassignment("t", 7, (1, 2)),
        Reassignment("nope", 0, (1,)),
        Reassignment("t", 0, (2, 3)),
        Reassignment("t", 0, (1, 3)),
    ]
    decided = reassign(image, {}, wanted)
    assert [error and error.code for error in decided.refused] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        None,
        ErrorCode.INVALID_REQUEST,
    ]
    assert layout(after(image, decided.records)) == ((2, 3, 1), (3,), (1,))


def test_min_isr_stays_within_the_replicas_before_and_behind_a_reassignment() -> None:
    image = moved(with_topic(cluster(1, 2, 3), partition((1,), (1,)), configs=MIN_1), 1, 2, 3)
    rules = TopicChanges(TopicDefaults(1, 3, {}))
    with pytest.raises(ApiError, match=r"min.insync.replicas is 2 and there are 1"):
        rules.change_config(image, "t", {"min.insync.replicas": "2"})


def test_the_replicas_of_a_broker_that_retires_go_to_other_racks_and_to_the_least_loaded() -> None:
    image = with_topic(
        cluster(1, 2, 3, 4, racks={1: "x", 2: "y", 3: "y", 4: "x"}),
        partition((1, 2), (1, 2)),
        partition((2, 1), (1, 2)),
        partition((4, 3), (3, 4)),
    )
    assert plan_retirement(image, 1) == [
        Reassignment("t", 0, (4, 2)),
        Reassignment("t", 1, (2, 4)),
    ]


def test_a_broker_cannot_retire_where_no_other_can_take_its_replicas() -> None:
    image = with_topic(inactive(cluster(1, 2, 3), 3), partition((1, 2), (1, 2)))
    with pytest.raises(ApiError, match="no other broker can take that of broker 1; start another"):
        plan_retirement(image, 1)
