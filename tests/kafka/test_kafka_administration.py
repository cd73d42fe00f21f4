"""Requests of Kafka's tools and administrators, in every version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from millrace import Admin
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import (
    active_producers,
    configs,
    consumer_group_describe,
    delete_records,
    describe_cluster,
    describe_quorum,
    elections,
    group_admin,
    group_membership,
    incremental_configs,
    leader_epochs,
    log_dirs,
    offset_delete,
    partitions,
    reassignments,
    topic_partitions,
    topics,
)
from millrace_protocol.kafka import group_offsets as offsets
from millrace_protocol.kafka.find_coordinator import FindCoordinatorRequest
from millrace_protocol.kafka.metadata import MetadataRequest
from millrace_protocol.kafka.producer_ids import InitProducerIdRequest
from millrace_server.dialects.kafka.setting_names import KAFKA_NAMES
from millrace_server.testing import Broker, Cluster
from millrace_server.topic_config import TOPIC_CONFIG_KEYS
from tests.broker.wire import batch
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.kafka.kafka_wire import KafkaWire, connect_kafka, produce, topic_id

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


# Groups


async def join(wire: KafkaWire, group: str = "g") -> str:
    """Makes a group with one member, which has a partition; its id."""
    await wire.call(FindCoordinatorRequest(group), 0)
    protocols = (group_membership.JoinGroupRequestProtocol("range", b"\x00\x01"),)
    request = group_membership.JoinGroupRequest(
        group, 10_000, 10_000, "", None, "consumer", protocols
    )
    joined = await wire.call(request, 3)
    member: str = joined.member_id
    mine = (group_membership.SyncGroupRequestAssignment(member, b"mine"),)
    sync = group_membership.SyncGroupRequest(group, 1, member, None, "consumer", "range", mine)
    assert (await wire.call(sync, 3)).error_code == ErrorCode.NONE
    return member


async def commit(wire: KafkaWire, group: str = "g") -> None:
    """Commits offset 7 of both partitions of `t` from outside the group."""
    await wire.call(FindCoordinatorRequest(group), 0)
    committed = tuple(offsets.OffsetCommitRequestPartition(number, 7) for number in range(2))
    topic = offsets.OffsetCommitRequestTopic("t", await topic_id(wire), committed)
    answer = await wire.call(offsets.OffsetCommitRequest(group, topics=(topic,)), 8)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.NONE}


@pytest.mark.parametrize("version", range(7))
async def test_a_group_is_described_with_its_members(wire: KafkaWire, version: int) -> None:
    member = await join(wire)
    request = group_admin.DescribeGroupsRequest(("g", "absent"))
    found, absent = (await wire.call(request, version)).groups
    assert (found.error_code, found.group_id, found.group_state) == (0, "g", "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (only,) = found.members
    assert (only.member_id, only.client_id, only.client_host) == (member, "test", "/127.0.0.1")
    assert (only.member_metadata, only.member_assignment) == (b"\x00\x01", b"mine")
    assert absent.group_state == "Dead"
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert absent.error_code == code


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_by_state_and_type(wire: KafkaWire, version: int) -> None:
    assert (await wire.call(group_admin.ListGroupsRequest(), version)).groups == ()
    await join(wire, "stable")
    await commit(wire, "empty")

    async def names(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        answer = await wire.call(group_admin.ListGroupsRequest(states, types), version)
        assert answer.error_code == ErrorCode.NONE
        return [each.group_id for each in answer.groups]

    assert await names() == ["empty", "stable"]
    if version >= 4:
        assert await names(("stable", "nonsense")) == ["stable"]
    if version >= 5:
        assert await names(types=("Consumer",)) == []
        assert await names(types=("classic", "consumer")) == ["empty", "stable"]


@pytest.mark.parametrize("version", range(3))
async def test_groups_without_members_are_deleted(wire: KafkaWire, version: int) -> None:
    await join(wire, "stable")
    await commit(wire, "empty")
    request = group_admin.DeleteGroupsRequest(("empty", "stable", "absent", ""))
    answer = await wire.call(request, version)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        ("empty", ErrorCode.NONE),
        ("stable", ErrorCode.NON_EMPTY_GROUP),
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


async def test_committed_offsets_are_deleted(wire: KafkaWire) -> None:
    await commit(wire)
    numbers = (0, 9)
    topic = offset_delete.OffsetDeleteRequestTopic(
        "t", tuple(offset_delete.OffsetDeleteRequestPartition(number) for number in numbers)
    )
    answer = await wire.call(offset_delete.OffsetDeleteRequest("g", (topic,)), 0)
    assert [each.error_code for each in answer.topics[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    wanted = offsets.OffsetFetchRequestTopic("t", (0, 1))
    found = await wire.call(offsets.OffsetFetchRequest("g", (wanted,)), 2)
    assert [each.committed_offset for each in found.topics[0].partitions] == [-1, 7]
    answer = await wire.call(offset_delete.OffsetDeleteRequest("absent", (topic,)), 0)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(2))
async def test_no_group_is_one_whose_partitions_the_broker_assigns(
    wire: KafkaWire, version: int
) -> None:
    await join(wire)
    request = consumer_group_describe.ConsumerGroupDescribeRequest(("g", ""))
    group, nameless = (await wire.call(request, version)).groups
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID
    assert (group.group_id, group.error_code) == ("g", ErrorCode.GROUP_ID_NOT_FOUND)


# Partitions


@pytest.mark.parametrize("version", range(3))
async def test_the_oldest_records_are_deleted(wire: KafkaWire, version: int) -> None:
    for _ in range(3):
        await wire.call(produce(batch(b"a")), 9)

    async def delete(offset: int, topic: str = "t") -> tuple[int, int]:
        where = (delete_records.DeleteRecordsPartition(0, offset),)
        named = delete_records.DeleteRecordsTopic(topic, where)
        answer = await wire.call(delete_records.DeleteRecordsRequest((named,)), version)
        (found,) = answer.topics[0].partitions
        return found.error_code, found.low_watermark

    assert await delete(2) == (ErrorCode.NONE, 2)
    assert await delete(-1) == (ErrorCode.NONE, 3)
    assert await delete(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(0, "absent") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize("version", range(2, 5))
async def test_the_end_of_a_leader_epoch_is_found(wire: KafkaWire, version: int) -> None:
    await wire.call(produce(batch(b"a", b"b")), 9)

    async def end(epoch: int, current: int = -1) -> tuple[int, int, int]:
        wanted = (leader_epochs.OffsetForLeaderPartition(0, current, epoch),)
        topic = leader_epochs.OffsetForLeaderTopic("t", wanted)
        request = leader_epochs.OffsetForLeaderEpochRequest(topics=(topic,))
        (found,) = (await wire.call(request, version)).topics[0].partitions
        return found.error_code, found.leader_epoch, found.end_offset

    assert await end(0) == (ErrorCode.NONE, 0, 2)
    assert await end(-1) == (ErrorCode.NONE, -1, -1)
    assert await end(0, current=9) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_becomes_wider(wire: KafkaWire, version: int) -> None:
    placed = (partitions.CreatePartitionsAssignment((0,)),)

    async def widen(*topics: tuple[Any, ...], validate_only: bool = False) -> list[int]:
        request = partitions.CreatePartitionsRequest(
            tuple(partitions.CreatePartitionsTopic(*topic) for topic in topics),
            validate_only=validate_only,
        )
        return [each.error_code for each in (await wire.call(request, version)).results]

    assert await widen(("t", 4), validate_only=True) == [ErrorCode.NONE]
    assert await widen(("t", 3), ("absent", 3)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await widen(("t", 2)) == [ErrorCode.INVALID_PARTITIONS]
    assert await widen(("t", 4, placed * 2)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert await widen(("t", 4, ())) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert await widen(("t", 2, ())) == [ErrorCode.INVALID_PARTITIONS]
    assert await widen(("t", 4, placed)) == [ErrorCode.NONE]
    assert await widen(("t", 5), ("t", 6)) == [ErrorCode.INVALID_REQUEST] * 2
    known = await wire.call(MetadataRequest(None), 1)
    assert len(known.topics[0].partitions) == 4


async def test_the_producers_of_a_partition_are_described(wire: KafkaWire) -> None:
    given = await wire.call(InitProducerIdRequest(None, 60_000), 5)
    records = batch(b"a", b"b", producer_id=given.producer_id, producer_epoch=0, base_sequence=0)
    await wire.call(produce(records), 9)
    topic = active_producers.TopicRequest("t", (0, 9))
    answer = await wire.call(active_producers.DescribeProducersRequest((topic,)), 0)
    found, absent = answer.topics[0].partitions
    (producer,) = found.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (given.producer_id, 0)
    assert (producer.last_sequence, producer.current_txn_start_offset) == (1, -1)
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Settings


def named(answer: Any) -> dict[str, Any]:
    """The settings of the only resource by name."""
    (result,) = answer.results
    assert result.error_code == ErrorCode.NONE
    return {each.name: each for each in result.configs}


async def change(wire: KafkaWire, *changes: tuple[str, int, str | None], **options: Any) -> int:
    """Changes settings of `t`; the error."""
    resource = incremental_configs.AlterConfigsResource(
        TOPIC, "t", tuple(incremental_configs.AlterableConfig(*each) for each in changes)
    )
    request = incremental_configs.IncrementalAlterConfigsRequest((resource,), **options)
    (result,) = (await wire.call(request, 1)).responses
    assert result.error_code == ErrorCode.NONE or result.error_message
    code: int = result.error_code
    return code


@pytest.mark.parametrize("version", range(1, 5))
async def test_settings_of_a_topic_are_described_with_their_sources(
    wire: KafkaWire, version: int
) -> None:
    assert await change(wire, ("retention.ms", SET, "1000")) == ErrorCode.NONE
    resource = configs.DescribeConfigsResource(TOPIC, "t", None)
    request = configs.DescribeConfigsRequest((resource,), True, True)
    found = named(await wire.call(request, version))
    own, default = found["retention.ms"], found["segment.bytes"]
    assert (own.value, own.config_source, own.read_only) == ("1000", 1, False)
    assert [(each.value, each.source) for each in own.synonyms] == [
        ("1000", 1),
        ("604800000", 5),
    ]
    assert (default.value, default.config_source) == (str(100 << 20), 5)
    if version >= 3:
        assert (own.config_type, default.config_type) == (5, 3)
        assert own.documentation
        assert found["unclean.leader.election.enable"].config_type == 1
        assert found["cleanup.policy"].config_type == 7
    some = configs.DescribeConfigsResource(TOPIC, "t", ("segment.ms", "nonsense"))
    found = named(await wire.call(configs.DescribeConfigsRequest((some,)), version))
    assert [*found] == ["segment.ms"]
    assert found["segment.ms"].synonyms == ()
    unnamed = configs.DescribeConfigsResource(TOPIC, "t", ())
    found = named(await wire.call(configs.DescribeConfigsRequest((unnamed,)), version))
    assert found.keys() == TOPIC_CONFIG_KEYS.keys()


async def test_settings_of_a_broker_are_described_and_change_with_a_restart(
    wire: KafkaWire,
) -> None:
    request = configs.DescribeConfigsRequest((configs.DescribeConfigsResource(BROKER, "0", None),))
    found = named(await wire.call(request, 4))
    assert found["num.partitions"].read_only
    assert {*KAFKA_NAMES.values()} < found.keys()
    resource = configs.AlterConfigsResource(BROKER, "0", (configs.AlterableConfig("node_id", "1"),))
    answer = await wire.call(configs.AlterConfigsRequest((resource,)), 2)
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST
    for kind, name in ((BROKER, "7"), (BROKER, "x"), (LOGGER, "0"), (TOPIC, "absent")):
        asked = configs.DescribeConfigsResource(kind, name, None)
        answer = await wire.call(configs.DescribeConfigsRequest((asked,)), 4)
        (result,) = answer.results
        assert result.error_code == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if kind == TOPIC else ErrorCode.INVALID_REQUEST
        )
        assert (result.resource_type, result.resource_name) == (kind, name)
    unknown, topic = (configs.DescribeConfigsResource(kind, "t", None) for kind in (9, TOPIC))
    answer = await wire.call(configs.DescribeConfigsRequest((unknown, topic)), 4)
    assert [each.error_code for each in answer.results] == [ErrorCode.INVALID_REQUEST] * 2
    for kind, name in ((GROUP, "g"), (BROKER, "")):
        asked = configs.DescribeConfigsResource(kind, name, None)
        assert named(await wire.call(configs.DescribeConfigsRequest((asked,)), 4)) == {}


async def test_settings_are_set_deleted_added_to_and_taken_from(wire: KafkaWire) -> None:
    async def value(name: str) -> str:
        asked = configs.DescribeConfigsResource(TOPIC, "t", (name,))
        found = named(await wire.call(configs.DescribeConfigsRequest((asked,)), 4))
        text: str = found[name].value
        return text

    assert await change(wire, ("cleanup.policy", APPEND, "compact")) == ErrorCode.NONE
    assert await value("cleanup.policy") == "compact,delete"
    assert await change(wire, ("cleanup.policy", SUBTRACT, "delete")) == ErrorCode.NONE
    assert await value("cleanup.policy") == "compact"
    assert await change(wire, ("cleanup.policy", DELETE, None)) == ErrorCode.NONE
    assert await value("cleanup.policy") == "delete"
    assert await change(wire, ("segment.ms", SET, "5"), validate_only=True) == ErrorCode.NONE
    assert await value("segment.ms") == "604800000"
    cases = [
        (("segment.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (("segment.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("segment.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("segment.ms", 9, "5"), ErrorCode.INVALID_REQUEST),
        (("nonsense", SET, "5"), ErrorCode.INVALID_CONFIG),
    ]
    for case, code in cases:
        assert await change(wire, case) == code
    twice = ("segment.ms", SET, "5")
    assert await change(wire, twice, twice) == ErrorCode.INVALID_REQUEST
    assert await change(wire, ("nonsense", DELETE, None)) == ErrorCode.NONE


async def test_what_is_wrong_is_told_in_kafkas_order(wire: KafkaWire) -> None:
    """An operation that fits no setting, a wrong name, a wrong value, a topic that is missing."""
    cases = [
        ("bad name", ("segment.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        ("bad name", ("segment.ms", SET, "soon"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("absent", ("segment.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        ("absent", ("segment.ms", SET, "5"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("absent", ("nonsense", DELETE, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for topic, setting, code in cases:
        settings = (incremental_configs.AlterableConfig(*setting),)
        resource = incremental_configs.AlterConfigsResource(TOPIC, topic, settings)
        answer = await wire.call(incremental_configs.IncrementalAlterConfigsRequest((resource,)), 1)
        assert answer.responses[0].error_code == code


@pytest.mark.parametrize("version", range(3))
async def test_settings_that_are_not_named_go_back_to_their_defaults(
    wire: KafkaWire, version: int
) -> None:
    await change(wire, ("retention.ms", SET, "1000"), ("segment.ms", SET, "1000"))
    resource = configs.AlterConfigsResource(
        TOPIC, "t", (configs.AlterableConfig("segment.ms", "2000"),)
    )
    answer = await wire.call(configs.AlterConfigsRequest((resource,)), version)
    assert answer.responses[0].error_code == ErrorCode.NONE
    asked = configs.DescribeConfigsResource(TOPIC, "t", ("retention.ms", "segment.ms"))
    found = named(await wire.call(configs.DescribeConfigsRequest((asked,)), 4))
    assert [each.value for each in found.values()] == ["604800000", "2000"]
    answer = await wire.call(configs.AlterConfigsRequest((resource, resource)), version)
    assert {each.error_code for each in answer.responses} == {ErrorCode.INVALID_REQUEST}


async def test_a_setting_without_a_value_is_refused_before_the_topic_is_looked_for(
    wire: KafkaWire,
) -> None:
    """As Kafka does: it is no way to delete a setting, and the request is wrong for any topic."""
    null = (configs.AlterableConfig("segment.ms", None),)
    resources = [
        configs.AlterConfigsResource(TOPIC, "t", null),
        configs.AlterConfigsResource(TOPIC, "absent", null),
        configs.AlterConfigsResource(TOPIC, "", ()),
    ]
    await change(wire, ("segment.ms", SET, "1000"))
    answer = await wire.call(configs.AlterConfigsRequest(tuple(resources)), 2)
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 3
    setting = (incremental_configs.AlterableConfig("segment.ms", SET, None),)
    absent = incremental_configs.AlterConfigsResource(TOPIC, "absent", setting)
    answer = await wire.call(incremental_configs.IncrementalAlterConfigsRequest((absent,)), 1)
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST]
    asked = configs.DescribeConfigsResource(TOPIC, "t", ("segment.ms",))
    found = named(await wire.call(configs.DescribeConfigsRequest((asked,)), 4))
    assert found["segment.ms"].value == "1000"


# The cluster


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described(broker: Broker, wire: KafkaWire, version: int) -> None:
    answer = await wire.call(describe_cluster.DescribeClusterRequest(), version)
    assert (answer.error_code, answer.controller_id) == (ErrorCode.NONE, 0)
    assert [(each.broker_id, each.port) for each in answer.brokers] == [(0, broker.port)]
    if version:
        for kind, code in ((2, 114), (7, 115)):
            request = describe_cluster.DescribeClusterRequest(endpoint_type=kind)
            assert (await wire.call(request, version)).error_code == code


@pytest.mark.parametrize("version", range(3))
async def test_the_quorum_is_described(broker: Broker, wire: KafkaWire, version: int) -> None:
    wanted = describe_quorum.RequestedTopic(
        "__cluster_metadata",
        (describe_quorum.RequestedPartition(0), describe_quorum.RequestedPartition(1)),
    )
    answer = await wire.call(describe_quorum.DescribeQuorumRequest((wanted,)), version)
    assert answer.error_code == ErrorCode.NONE
    found, absent = answer.topics[0].partitions
    assert (found.error_code, found.leader_id, found.observers) == (ErrorCode.NONE, 0, ())
    (voter,) = found.current_voters
    assert voter.log_end_offset >= found.high_watermark > 0
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 1:
        assert voter.last_fetch_timestamp > 0
    if version >= 2:
        assert voter.replica_directory_id.int
        (node,) = answer.nodes
        (listener,) = node.listeners
        assert (node.node_id, listener.name, listener.port) == (0, "PLAIN", broker.port)


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_topics_are_described_in_pages(wire: KafkaWire, limit: int) -> None:
    def request(
        *names: str, limit: int = 2_000, cursor: topic_partitions.Cursor | None = None
    ) -> topic_partitions.DescribeTopicPartitionsRequest:
        topics = tuple(topic_partitions.TopicRequest(name) for name in names)
        return topic_partitions.DescribeTopicPartitionsRequest(topics, limit, cursor)

    whole = await wire.call(request("t", "absent"), 0)
    absent, topic = whole.topics
    assert (absent.name, absent.error_code) == ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (topic.name, topic.topic_id) == ("t", await topic_id(wire))
    assert [each.isr_nodes for each in topic.partitions] == [(0,), (0,)]
    assert whole.next_cursor is None
    # A partition number in the cursor is one of the topic in the cursor.
    after = await wire.call(request("absent", "t", cursor=topic_partitions.Cursor("absent", 1)), 0)
    assert after.topics == whole.topics
    beyond = request("absent", cursor=topic_partitions.Cursor("t", 0))
    (refused,) = (await wire.call(beyond, 0)).topics
    assert (refused.name, refused.error_code) == ("absent", ErrorCode.INVALID_REQUEST)

    seen: list[tuple[str, int]] = []
    cursor = None
    await wire.call(FindCoordinatorRequest("g"), 0)
    while True:
        page = await wire.call(request(limit=limit, cursor=cursor), 0)
        found = [(t.name, each.partition_index) for t in page.topics for each in t.partitions]
        assert len(found) <= limit
        seen += found
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [("__consumer_offsets", 0), ("t", 0), ("t", 1)]


@pytest.mark.parametrize("version", range(1, 6))
async def test_the_data_directory_is_described(wire: KafkaWire, version: int) -> None:
    await wire.call(produce(batch(b"a")), 9)
    answer = await wire.call(log_dirs.DescribeLogDirsRequest(None), version)
    (directory,) = answer.results
    assert directory.error_code == ErrorCode.NONE
    (topic,) = [each for each in directory.topics if each.name == "t"]
    assert [each.partition_size for each in topic.partitions] == [len(batch(b"a")), 0]
    if version >= 4:
        assert directory.total_bytes > directory.usable_bytes > 0
    some = (log_dirs.DescribableLogDirTopic("t", (1,)),)
    answer = await wire.call(log_dirs.DescribeLogDirsRequest(some), version)
    (topic,) = answer.results[0].topics
    assert [each.partition_index for each in topic.partitions] == [1]


@pytest.mark.parametrize("version", range(3))
async def test_elections_that_are_not_needed_are_refused(wire: KafkaWire, version: int) -> None:
    wanted = (elections.TopicPartitions("t", (0,)), elections.TopicPartitions("absent", (0,)))
    answer = await wire.call(elections.ElectLeadersRequest(topic_partitions=wanted), version)
    assert [
        (each.topic, [p.error_code for p in each.partition_result])
        for each in answer.replica_election_results
    ] == [
        ("t", [ErrorCode.ELECTION_NOT_NEEDED]),
        ("absent", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ]
    answer = await wire.call(elections.ElectLeadersRequest(), version)
    assert answer.replica_election_results == (elections.ReplicaElectionResult("t", ()),)
    if version:
        answer = await wire.call(elections.ElectLeadersRequest(9), version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(2))
async def test_replicas_move_only_to_brokers_that_are_there(wire: KafkaWire, version: int) -> None:
    def move(replicas: tuple[int, ...] | None) -> reassignments.AlterPartitionReassignmentsRequest:
        partition = reassignments.ReassignablePartition(0, replicas)
        topic = reassignments.ReassignableTopic("t", (partition,))
        return reassignments.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=version == 0, topics=(topic,)
        )

    cases = [((9,), ErrorCode.INVALID_REPLICA_ASSIGNMENT), ((0,), ErrorCode.NONE)]
    cases.append((None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))  # type: ignore[arg-type]
    if version:
        # A broker that is not there is told before another number of replicas.
        cases.append(((0, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT))  # type: ignore[arg-type]
        cases.append(((), ErrorCode.INVALID_REPLICA_ASSIGNMENT))  # type: ignore[arg-type]
    for replicas, code in cases:
        answer = await wire.call(move(replicas), version)
        assert answer.error_code == ErrorCode.NONE
        assert answer.responses[0].partitions[0].error_code == code
    for which in (None, (reassignments.ListPartitionReassignmentsTopics("t", (0,)),)):
        listed = await wire.call(reassignments.ListPartitionReassignmentsRequest(0, which), 0)
        assert (listed.error_code, listed.topics) == (ErrorCode.NONE, ())


async def test_any_broker_of_a_cluster_creates_topics_where_the_client_says() -> None:
    async with Cluster(3) as cluster:
        async with connect_kafka(cluster.brokers[1].port) as wire:
            known = await wire.call(describe_cluster.DescribeClusterRequest(), 2)
        asked = next(each for each in cluster.running if each != known.controller_id)
        async with connect_kafka(cluster.brokers[asked].port) as wire:
            placed = ((3, 1), (2, 3))
            new = topics.CreatableTopic(
                "t", -1, -1, tuple(topics.CreatableReplicaAssignment(*p) for p in enumerate(placed))
            )
            made = await wire.call(topics.CreateTopicsRequest((new,)), 7)
            assert made.topics[0].error_code == ErrorCode.NONE
            more = partitions.CreatePartitionsAssignment((1, 2))
            wider = partitions.CreatePartitionsTopic("t", 3, (more,))
            widened = await wire.call(partitions.CreatePartitionsRequest((wider,)), 3)
            assert widened.results[0].error_code == ErrorCode.NONE
            request = topic_partitions.DescribeTopicPartitionsRequest(
                (topic_partitions.TopicRequest("t"),)
            )
            found: list[Any] = []
            async with asyncio.timeout(HANG_TIMEOUT_S):
                while len(found) < 3:
                    found = (await wire.call(request, 0)).topics[0].partitions
            assert [each.replica_nodes for each in found] == [*placed, (1, 2)]


async def test_any_broker_of_a_cluster_moves_replicas_and_leaders() -> None:
    async with Cluster(3) as cluster:
        async with Admin(cluster.servers) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=2)
        async with connect_kafka(cluster.brokers[1].port) as wire:
            known = await wire.call(describe_cluster.DescribeClusterRequest(), 2)
        asked = next(each for each in cluster.running if each != known.controller_id)
        async with (
            asyncio.timeout(HANG_TIMEOUT_S),
            connect_kafka(cluster.brokers[asked].port) as wire,
        ):
            before = await partition(wire)
            quorum = describe_quorum.RequestedTopic(
                "__cluster_metadata", (describe_quorum.RequestedPartition(0),)
            )
            described = await wire.call(describe_quorum.DescribeQuorumRequest((quorum,)), 2)
            (log,) = described.topics[0].partitions
            assert (log.leader_id, len(log.current_voters)) == (known.controller_id, 3)
            assert all(each.log_end_offset > 0 for each in log.current_voters)
            (new,) = {1, 2, 3}.difference(before.replica_nodes)
            wanted = (new, before.replica_nodes[0])
            move = reassignments.ReassignablePartition(0, wanted)
            topic = reassignments.ReassignableTopic("t", (move,))
            answer = await wire.call(
                reassignments.AlterPartitionReassignmentsRequest(topics=(topic,)), 1
            )
            assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
            listing = reassignments.ListPartitionReassignmentsRequest()
            for topic in (await wire.call(listing, 0)).topics:
                assert topic.partitions[0].adding_replicas == (new,)
            while {*(await partition(wire)).isr_nodes} != {*wanted}:
                pass
            election = (elections.TopicPartitions("t", (0,)),)
            while (await partition(wire)).leader_id != new:
                request = elections.ElectLeadersRequest(topic_partitions=election)
                assert (await wire.call(request, 2)).error_code == ErrorCode.NONE


async def partition(wire: KafkaWire) -> Any:
    """The only partition of `t`, as a broker describes it when it knows it."""
    request = topic_partitions.DescribeTopicPartitionsRequest((topic_partitions.TopicRequest("t"),))
    found: tuple[Any, ...] = ()
    while not found:
        found = (await wire.call(request, 0)).topics[0].partitions
    return found[0]
