"""Placement: replicas are spread over brokers and racks, and no topic asks for too many."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import PartitionRecord
from millrace_server.api_error import ApiError
from millrace_server.metadata.image import BrokerRegistration, ClusterImage
from millrace_server.metadata.placement import place, turn_of
from millrace_server.metadata.topics import TopicChanges, TopicDefaults
from tests.server.metadata.clusters import TOPIC, after, cluster, inactive

RULES = TopicChanges(TopicDefaults(6, 3, {}))


def brokers_in(racks: list[str | None]) -> list[BrokerRegistration]:
    return [
        BrokerRegistration(number, 1, uuid.UUID(int=1), (), rack, (), False)
        for number, rack in enumerate(racks)
    ]


def created(
    image: ClusterImage, factor: int = -1, partitions: int = -1, **configs: str
) -> ClusterImage:
    records = RULES.create_topic(
        image,
        "t",
        topic_id=TOPIC,
        partitions=partitions,
        replication_factor=factor,
        configs={name.replace("_", "."): value for name, value in configs.items()},
        start=7,
    )
    return after(image, records)


@given(
    racks=st.lists(st.sampled_from([None, "x", "y", "z"]), min_size=1, max_size=9),
    count=st.integers(1, 40),
    start=st.integers(0, 1 << 16),
    data=st.data(),
)
def test_leaders_are_even_and_replicas_differ_in_broker_and_rack(
    racks: list[str | None], count: int, start: int, data: st.DataObject
) -> None:
    brokers = brokers_in(racks)
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, range(count), replication_factor=factor, start=start)
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker.broker_id] for broker in brokers]
    assert max(counts) - min(counts) <= 1
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = {racks[broker_id] for broker_id in replicas}
        assert len(used) == min(factor, len(set(racks)))


@given(
    per_rack=st.integers(1, 4),
    rack_count=st.integers(1, 3),
    rounds=st.integers(1, 5),
    data=st.data(),
)
def test_replicas_are_even_over_whole_rounds_where_racks_are_equal(
    per_rack: int, rack_count: int, rounds: int, data: st.DataObject
) -> None:
    brokers = brokers_in([f"r{number % rack_count}" for number in range(per_rack * rack_count)])
    factor = data.draw(st.integers(1, len(brokers)))
    numbers = range(rounds * len(brokers))
    placed = place(brokers, numbers, replication_factor=factor, start=0)
    held = Counter(broker_id for replicas in placed for broker_id in replicas)
    assert set(held.values()) == {rounds * factor}


def test_the_partitions_of_a_broker_that_fails_find_their_leaders_on_all_others() -> None:
    placed = place(brokers_in([None] * 4), range(12), replication_factor=2, start=0)
    assert Counter(second for first, second in placed if first == 0) == {1: 1, 2: 1, 3: 1}


def test_partitions_that_are_added_go_on_with_the_round() -> None:
    image = created(cluster(1, 2, 3, 4), factor=2, partitions=6)
    image = after(image, RULES.add_partitions(image, "t", 8, start=1))
    leaders = [p.replicas[0] for p in image.topics["t"].partitions]
    assert Counter(leaders) == {1: 2, 2: 2, 3: 2, 4: 2}


def test_the_round_of_a_broker_that_is_gone_is_not_known() -> None:
    assert turn_of(brokers_in([None, None]), 7) is None


@pytest.mark.parametrize(("brokers", "factor"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_a_topic_has_three_replicas_by_default_or_one_on_each_broker(
    brokers: int, factor: int
) -> None:
    image = created(cluster(*range(1, brokers + 1)))
    assert image.topics["t"].replication_factor == factor


def test_three_replicas_bring_two_for_acks_of_all_and_are_read_alike_everywhere() -> None:
    found = {
        factor: dict(created(cluster(1, 2, 3), factor).topics["t"].configs) for factor in (1, 2, 3)
    }
    assert found == {
        1: {},
        2: {"durability": "fsync", "min.insync.replicas": "1"},
        3: {"durability": "fsync", "min.insync.replicas": "2"},
    }
    asked = created(cluster(1, 2, 3), 3, min_insync_replicas="1", durability="os")
    assert dict(asked.topics["t"].configs) == {"durability": "os", "min.insync.replicas": "1"}


def test_a_setting_that_goes_back_to_its_default_stays_written_down() -> None:
    image = created(cluster(1, 2, 3), 3, min_insync_replicas="3")
    image = after(image, RULES.change_config(image, "t", {"min.insync.replicas": None}))
    assert image.topics["t"].configs["min.insync.replicas"] == "2"


@pytest.mark.parametrize("factor", [0, -2, 4])
def test_a_replication_factor_beyond_the_brokers_is_refused(factor: int) -> None:
    with pytest.raises(ApiError, match=r"with 3 broker.s.; it is at least 1") as refused:
        created(cluster(1, 2, 3), factor)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("stopping", [False, True])
def test_a_broker_out_of_service_gets_replicas_only_where_the_others_are_too_few(
    stopping: bool,
) -> None:
    image = inactive(cluster(1, 2, 3), 2, stopping=stopping)
    for factor in (-1, 3):
        for partition in created(image, factor, partitions=4).topics["t"].partitions:
            assert sorted(partition.replicas) == [1, 2, 3]
            assert partition.replicas[-1] == 2
            assert sorted(partition.isr) == [1, 3]
            assert partition.leader == partition.replicas[0]
    for partition in created(image, 2, partitions=4).topics["t"].partitions:
        assert sorted(partition.replicas) == [1, 3]


def test_no_topic_is_created_while_no_broker_is_in_service() -> None:
    image = inactive(inactive(cluster(1, 2), 1), 2)
    with pytest.raises(ApiError, match=r"None of the 2 broker.s. is in service"):
        created(image, 2)


def test_min_isr_above_the_replicas_is_refused_at_create_and_at_alter() -> None:
    with pytest.raises(ApiError, match=r"min.insync.replicas is 3 and there are 2 replica.s."):
        created(cluster(1, 2, 3), 2, min_insync_replicas="3")
    image = created(cluster(1, 2, 3), 2)
    with pytest.raises(ApiError, match="no acks=all write could ever be answered"):
        RULES.change_config(image, "t", {"min.insync.replicas": "3"})


def test_internal_topics_are_on_all_brokers_up_to_three() -> None:
    for brokers, factor in ((1, 1), (2, 2), (4, 3)):
        records = RULES.create_topic(
            cluster(*range(brokers)),
            "__consumer_offsets",
            topic_id=TOPIC,
            partitions=8,
            replication_factor=-1,
            configs={"cleanup.policy": "compact"},
            is_internal=True,
        )
        assert {len(r.replicas) for r in records if isinstance(r, PartitionRecord)} == {factor}
