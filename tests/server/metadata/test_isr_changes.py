"""AlterPartition: what of a leader's wish becomes the ISR."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.isr_changes import UNKNOWN_EPOCH, IsrChange, change_isrs
from millrace_server.metadata.partition_changes import PartitionDecisions
from tests.server.metadata.clusters import (
    TOPIC,
    after,
    cluster,
    inactive,
    partition,
    seen,
    with_topic,
)

IMAGE = with_topic(cluster(1, 2, 3), partition((1, 2, 3), (1, 2)))


def wish(image: ClusterImage, *isr: int) -> IsrChange:
    """The change that the leader of partition 0 asks for, with every epoch right."""
    known = image.topics["t"].partitions[0]
    members = tuple((member, image.brokers[member].epoch) for member in isr)
    return IsrChange(TOPIC, 0, known.leader_epoch, known.partition_epoch, members)


def ask(image: ClusterImage, *wanted: IsrChange, broker_id: int = 1) -> PartitionDecisions:
    epoch = image.brokers[broker_id].epoch
    return change_isrs(image, {}, wanted, broker_id=broker_id, broker_epoch=epoch)


def refusal(decided: PartitionDecisions) -> ErrorCode | None:
    (error,) = decided.refused
    return None if error is None else error.code


def test_a_follower_enters_the_isr_and_leaves_it() -> None:
    image = after(IMAGE, ask(IMAGE, wish(IMAGE, 3, 2, 1)).records)
    assert seen(image) == (1, (1, 2, 3), ())
    image = after(image, ask(image, wish(image, 1, 3)).records)
    assert seen(image) == (1, (1, 3), ())
    assert image.topics["t"].partitions[0].partition_epoch == 11


def test_after_an_isr_that_stays_as_it_was_no_older_proposal_takes_effect() -> None:
    older = wish(IMAGE, 1, 2, 3)
    decided = ask(IMAGE, wish(IMAGE, 2, 1))
    assert refusal(decided) is None
    image = after(IMAGE, decided.records)
    assert seen(image) == seen(IMAGE)
    assert image.topics["t"].partitions[0].partition_epoch == 10
    assert refusal(ask(image, older)) is ErrorCode.INVALID_UPDATE_VERSION


def test_a_leader_that_does_not_know_an_epoch_leaves_it_out() -> None:
    change = replace(wish(IMAGE, 1), isr=((1, UNKNOWN_EPOCH), (3, UNKNOWN_EPOCH)))
    assert refusal(ask(IMAGE, change)) is None


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 8}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 10}, ErrorCode.NOT_CONTROLLER),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": IMAGE.cluster_id}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"isr": ((2, -1), (3, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((1, -1), (1, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((1, -1), (4, -1))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((1, -1), (3, 0))}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_change_that_is_not_of_this_moment_is_refused(
    changed: dict[str, object], code: ErrorCode
) -> None:
    decided = ask(IMAGE, replace(wish(IMAGE, 1, 2, 3), **changed))  # type: ignore[arg-type]
    assert (refusal(decided), decided.records) == (code, [])


@pytest.mark.parametrize("stopping", [False, True])
def test_a_broker_that_is_fenced_or_stopping_enters_no_isr(stopping: bool) -> None:
    image = inactive(IMAGE, 3, stopping=stopping)
    assert refusal(ask(image, wish(image, 1, 2, 3))) is ErrorCode.INELIGIBLE_REPLICA


def test_another_broker_than_the_leader_changes_nothing() -> None:
    assert refusal(ask(IMAGE, wish(IMAGE, 1, 2), broker_id=2)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"),
    [(1, 0, ErrorCode.STALE_BROKER_EPOCH), (9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED)],
)
def test_a_sender_whose_registration_is_over_is_refused(
    broker_id: int, epoch: int, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refused:
        change_isrs(IMAGE, {}, [wish(IMAGE, 1)], broker_id=broker_id, broker_epoch=epoch)
    assert refused.value.code is code


def test_each_partition_is_decided_for_itself_and_stands_once() -> None:
    good = wish(IMAGE, 1, 2, 3)
    decided = ask(IMAGE, replace(good, leader_epoch=1), good)
    assert [error and error.code for error in decided.refused] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
    ]


def test_a_follower_that_falls_behind_below_min_isr_stays_eligible() -> None:
    configs = {"min.insync.replicas": "2"}
    image = with_topic(cluster(1, 2, 3), partition((1, 2, 3), (1, 2)), configs=configs)
    image = after(image, ask(image, wish(image, 1)).records)
    assert seen(image) == (1, (1,), (2,))
    image = after(image, ask(image, wish(image, 1, 3)).records)
    assert seen(image) == (1, (1, 3), ()), "records are committed again, without 2"


def test_a_leader_that_a_finished_reassignment_removes_is_told_of_the_new_one() -> None:
    known = replace(partition((2, 3, 1), (1, 2)), leader=1, adding=(3,), removing=(1,))
    image = with_topic(cluster(1, 2, 3), known)
    decided = ask(image, wish(image, 1, 2, 3))
    assert refusal(decided) is ErrorCode.NEW_LEADER_ELECTED
    assert seen(after(image, decided.records)) == (2, (2, 3), ())
