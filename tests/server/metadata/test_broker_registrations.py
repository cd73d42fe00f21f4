"""Brokers that register, are refused, and leave."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    ClusterRecord,
    QuorumVoter,
    RegisterBrokerRecord,
    VotersRecord,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata.broker_registrations import (
    register_broker,
    register_single_broker,
    unregister_broker,
)
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.producer_ids import reserve_producer_ids
from millrace_server.metadata.replica_directories import assign_directories
from tests.server.metadata.clusters import (
    CLUSTER,
    TOPIC,
    after,
    cluster,
    directory,
    inactive,
    partition,
    seen,
    start_of,
    with_topic,
)


def test_the_first_broker_makes_the_cluster_and_the_others_join_it() -> None:
    first = register_broker(ClusterImage(), {}, start_of(1), cluster_id=CLUSTER, has_session=False)
    assert [type(record) for record in first] == [ClusterRecord, RegisterBrokerRecord]
    image = after(ClusterImage(), first)
    second = register_broker(
        image, {}, start_of(2), cluster_id=uuid.UUID(int=99), has_session=False
    )
    image = after(image, second)
    assert image.cluster_id == CLUSTER
    assert {b.broker_id: b.epoch for b in image.brokers.values()} == {1: 1, 2: 2}
    assert all(broker.is_fenced for broker in image.brokers.values())
    assert (image.brokers[2].broker_host, image.brokers[2].broker_port) == ("localhost", 9093)


def test_a_request_that_comes_twice_keeps_the_epoch() -> None:
    image = cluster(1, 2)
    again = register_broker(image, {}, start_of(2), cluster_id=CLUSTER, has_session=True)
    assert again == []


def test_a_broker_id_has_one_process_while_its_session_lives() -> None:
    image = cluster(1, 2)
    other = start_of(2, incarnation=7)
    with pytest.raises(ApiError, match="another node_id") as refused:
        register_broker(image, {}, other, cluster_id=CLUSTER, has_session=True)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    for known in (inactive(image, 2), inactive(image, 2, stopping=True)):
        assert register_broker(known, {}, other, cluster_id=CLUSTER, has_session=True)
    assert register_broker(image, {}, other, cluster_id=CLUSTER, has_session=False)


def test_a_copy_of_another_brokers_directory_is_refused() -> None:
    start = start_of(2, directory_id=directory(1))
    with pytest.raises(ApiError, match="it is a copy; start broker 2 with its own") as refused:
        register_broker(cluster(1), {}, start, cluster_id=CLUSTER, has_session=False)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_cluster_of_one_restarts_as_it_was() -> None:
    image = with_topic(cluster(0), partition((0,), (0,)))
    image = after(
        image, register_single_broker(image, start_of(0, incarnation=7), cluster_id=CLUSTER)
    )
    assert not image.brokers[0].is_fenced
    assert image.topics["t"].partitions[0] == partition((0,), (0,))
    with pytest.raises(ApiError, match="belongs to broker 0 and node_id is 4; set node_id"):
        register_single_broker(image, start_of(4), cluster_id=CLUSTER)


def test_what_an_earlier_process_asks_for_is_refused() -> None:
    image = with_topic(cluster(1, 2), partition((1, 2), (1, 2)))
    stale = image.brokers[1].epoch - 1
    for broker_id, epoch, code in (
        (1, stale, ErrorCode.STALE_BROKER_EPOCH),
        (9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ):
        with pytest.raises(ApiError) as refused:
            reserve_producer_ids(image, broker_id, broker_epoch=epoch)
        assert refused.value.code is code
        with pytest.raises(ApiError) as refused:
            assign_directories(image, broker_id, directory(1), [(TOPIC, 0)], broker_epoch=epoch)
        assert refused.value.code is code


def test_producer_ids_of_two_brokers_do_not_meet() -> None:
    image = cluster(1, 2)
    image = after(image, reserve_producer_ids(image, 1, broker_epoch=image.brokers[1].epoch))
    first = image.next_producer_id
    image = after(image, reserve_producer_ids(image, 2, broker_epoch=image.brokers[2].epoch))
    assert (first, image.next_producer_id) == (1_000, 2_000)


def test_producer_ids_that_would_overflow_are_refused() -> None:
    image = cluster(1)
    with pytest.raises(ApiError, match="There are no producer ids from 9223372036854775807 on"):
        reserve_producer_ids(image, 1, broker_epoch=image.brokers[1].epoch, at_least=2**63 - 1)


@pytest.mark.parametrize("changed", [{"broker_id": -1}, {"directory_ids": ()}, {"listeners": ()}])
def test_a_broker_without_an_id_a_directory_or_a_listener_is_refused(
    changed: dict[str, object],
) -> None:
    start = replace(start_of(2), **changed)  # type: ignore[arg-type]
    with pytest.raises(ApiError, match="an id from 0 on, and one of each at least"):
        register_broker(cluster(1), {}, start, cluster_id=CLUSTER, has_session=False)


def test_directories_are_assigned_once_and_to_replicas_that_exist() -> None:
    known = replace(partition((1, 2), (1, 2)), directory_ids=(uuid.UUID(int=0), directory(2)))
    image = with_topic(cluster(1, 2, 3), known)
    epochs = {b.broker_id: b.epoch for b in image.brokers.values()}
    asked = [(TOPIC, 0), (TOPIC, 5), (TOPIC, -1), (uuid.UUID(int=77), 0)]
    records = assign_directories(image, 1, directory(1), asked, broker_epoch=epochs[1])
    assert len(records) == 1
    assert after(image, records).topics["t"].partitions[0].directory_ids[0] == directory(1)
    assert assign_directories(image, 2, directory(2), asked, broker_epoch=epochs[2]) == []
    assert assign_directories(image, 3, directory(3), asked, broker_epoch=epochs[3]) == []
    with pytest.raises(ApiError, match="is not registered with the directory"):
        assign_directories(image, 1, directory(2), asked, broker_epoch=epochs[1])


def test_a_broker_is_retired_when_it_is_stopped_and_not_needed() -> None:
    image = with_topic(
        inactive(cluster(1, 2, 3), 3), partition((1, 3), (1,), elr=(3,)), partition((2, 1), (2, 1))
    )
    image = after(image, unregister_broker(image, {}, 3))
    assert sorted(image.brokers) == [1, 2]
    assert seen(image) == (1, (1,), ())
    returned = after(
        image,
        register_broker(
            image, {}, start_of(3, incarnation=7), cluster_id=CLUSTER, has_session=False
        ),
    )
    assert seen(returned) == (1, (1,), ())


@pytest.mark.parametrize(
    ("broker_id", "says"),
    [
        (1, "Broker 1 is in service; stop it first"),
        (3, "has the last replica of 2 partition.s., such as t-1; start it and move them"),
        (2, "is a voter of the metadata quorum; remove it from that first"),
        (9, "There is no broker 9; the cluster has 1, 2, 3"),
    ],
)
def test_retiring_a_broker_that_is_needed_is_refused(broker_id: int, says: str) -> None:
    voter = QuorumVoter(2, directory(2), "localhost", 9093)
    image = after(inactive(cluster(1, 2, 3), 2, 3), [VotersRecord((voter,))])
    image = with_topic(
        image,
        partition((1, 3), (1, 3)),
        partition((1, 3), (3,), leader=-1),
        partition((3, 1), (), leader=-1, last_known_elr=(3, 1)),
    )
    with pytest.raises(ApiError, match=says):
        unregister_broker(image, {}, broker_id)
