"""Kafka's requests, one by one, in the versions that differ."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest

from millrace import Admin
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import group_membership as membership
from millrace_protocol.kafka import group_offsets as offsets
from millrace_protocol.kafka import topics
from millrace_protocol.kafka.api_versions import ApiVersionsRequest
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApiKey
from millrace_protocol.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace_protocol.kafka.find_coordinator import FindCoordinatorRequest
from millrace_protocol.kafka.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millrace_protocol.kafka.metadata import NO_ID, MetadataRequest, MetadataRequestTopic
from millrace_protocol.kafka.produce import ProducePartition, ProduceRequest, ProduceTopic
from millrace_protocol.kafka.producer_ids import InitProducerIdRequest
from millrace_server.testing import Broker
from tests.broker.wire import batch, values_of
from tests.hostile.forgery import forged
from tests.kafka.kafka_wire import KafkaWire, connect_kafka, produce, topic_id

UNKNOWN_TOPIC_ID = 100
NOBODY = uuid.UUID(int=7)


def fetch(offset: int = 0, *, topic: FetchTopic | None = None, **options: Any) -> FetchRequest:
    wanted = topic or FetchTopic("t", NO_ID, (from_offset(offset),))
    return FetchRequest(**{"max_bytes": 1 << 20, "min_bytes": 1, **options}, topics=(wanted,))


def from_offset(offset: int, epoch: int = -1) -> FetchPartition:
    return FetchPartition(0, epoch, offset, partition_max_bytes=1 << 20)


# Which apis there are


@pytest.mark.parametrize("version", range(5))
async def test_every_api_is_named_with_its_versions(wire: KafkaWire, version: int) -> None:
    answer = await wire.call(ApiVersionsRequest("kafka-python", "3.0.12"), version)
    assert answer.error_code == ErrorCode.NONE
    assert {each.api_key: each.max_version for each in answer.api_keys} == {
        key: api.max_version for key, api in KAFKA_APIS.items()
    }


async def test_a_later_version_of_api_versions_is_answered_in_version_0(wire: KafkaWire) -> None:
    await wire.send_raw(KafkaApiKey.API_VERSIONS, 9, b"\x00" * 5)
    answer = await wire.response(KAFKA_APIS[KafkaApiKey.API_VERSIONS], 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(18, 4)]
    assert (await wire.call(ApiVersionsRequest("a", "1"), 4)).error_code == ErrorCode.NONE


async def test_client_software_without_a_name_is_refused(wire: KafkaWire) -> None:
    answer = await wire.call(ApiVersionsRequest("", "1"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (KafkaApiKey.PRODUCE, 2, b""),
        (KafkaApiKey.METADATA, 99, b""),
        (24, 0, b""),
        (KafkaApiKey.METADATA, 1, b"\x00\x00\x00\x05"),
    ],
    ids=["an old version", "a later version", "an unknown api", "a broken body"],
)
async def test_what_the_broker_does_not_have_closes_the_connection(
    wire: KafkaWire, key: int, version: int, body: bytes
) -> None:
    await wire.send_raw(key, version, body)
    assert await wire.until_closed() == b""


async def test_bytes_behind_a_request_are_ignored(wire: KafkaWire) -> None:
    answer = await wire.call(MetadataRequest(()), 13, more=b"\x00\x00\x00")
    assert len(answer.brokers) == 1


# Metadata


@pytest.mark.parametrize(
    ("version", "named", "found"),
    [(0, (), ["t"]), (1, (), []), (1, None, ["t"]), (13, None, ["t"])],
)
async def test_a_list_of_topics_is_all_none_or_those_named(
    wire: KafkaWire, version: int, named: tuple[()] | None, found: list[str]
) -> None:
    answer = await wire.call(MetadataRequest(named), version)
    assert [topic.name for topic in answer.topics] == found
    assert [(each.node_id, each.host) for each in answer.brokers] == [(0, "127.0.0.1")]


async def test_a_topic_has_an_id_by_which_it_is_found(wire: KafkaWire) -> None:
    known = await topic_id(wire)
    answer = await wire.call(
        MetadataRequest(
            (
                MetadataRequestTopic(known, None),
                MetadataRequestTopic(known, ""),
                MetadataRequestTopic(NOBODY, None),
            )
        ),
        13,
    )
    by_id, beside_a_name, unknown = answer.topics
    assert beside_a_name == by_id
    assert (by_id.name, by_id.topic_id, len(by_id.partitions)) == ("t", known, 2)
    assert by_id.partitions[1].leader_id == 0
    assert (unknown.error_code, unknown.topic_id) == (UNKNOWN_TOPIC_ID, NOBODY)
    early = await wire.call(MetadataRequest((MetadataRequestTopic(known, "t"),)), 11)
    assert [each.error_code for each in early.topics] == [ErrorCode.INVALID_REQUEST]
    bad = await wire.call(MetadataRequest((MetadataRequestTopic(NO_ID, "a b"),)), 12)
    assert [each.error_code for each in bad.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize(("creates", "allows"), [(False, True), (True, False), (True, True)])
async def test_a_topic_is_created_if_the_broker_does_so_and_the_client_allows_it(
    creates: bool, allows: bool
) -> None:
    async with (
        Broker(auto_create_topics=creates, partitions=3) as broker,
        connect_kafka(broker.port) as wire,
    ):
        answer = await wire.call(MetadataRequest((MetadataRequestTopic(NO_ID, "n"),), allows), 4)
        (topic,) = answer.topics
        if creates and allows:
            assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 3)
        else:
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        bad = await wire.call(MetadataRequest((MetadataRequestTopic(NO_ID, "a b"),)), 4)
        assert bad.topics[0].error_code != ErrorCode.NONE


# Produce and Fetch


@pytest.mark.parametrize("version", range(3, 14))
async def test_records_are_appended_and_read_in_every_version(
    wire: KafkaWire, version: int
) -> None:
    known = await topic_id(wire)
    request = produce(batch(b"a", b"b"))
    request.topics[0].topic_id = known
    (result,) = (await wire.call(request, version)).responses[0].partition_responses
    assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 0)
    for reading in range(4, 19):
        wanted = FetchTopic("t", known, (from_offset(0),))
        answer = await wire.call(fetch(topic=wanted, isolation_level=1), reading)
        (found,) = answer.responses[0].partitions
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 2, 2)
        assert values_of(found) == [b"a", b"b"]


async def test_what_is_refused_is_said_for_each_partition(wire: KafkaWire) -> None:
    cases = [
        (produce(batch(b"x"), topic="absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(batch(b"x"), acks=5), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce(batch(b"x"), acks=5, partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce(b"\x00" * 80), ErrorCode.INVALID_RECORD),
        (produce(b""), ErrorCode.INVALID_RECORD),
    ]
    for request, code in cases:
        (result,) = (await wire.call(request, 9)).responses[0].partition_responses
        assert result.error_code == code
        assert result.error_message
    # As in Kafka: what counts is whether a batch belongs to a transaction.
    transactional = produce(batch(b"x"))
    transactional.transactional_id = "tx"
    (result,) = (await wire.call(transactional, 9)).responses[0].partition_responses
    assert result.error_code == ErrorCode.NONE
    transactional.topics[0].partitions[0].records = forged(attributes=0x10)
    (result,) = (await wire.call(transactional, 9)).responses[0].partition_responses
    assert result.error_code == ErrorCode.INVALID_RECORD
    by_id = ProduceRequest(
        None, -1, 1_000, (ProduceTopic("", NOBODY, (ProducePartition(0, batch(b"x")),)),)
    )
    (result,) = (await wire.call(by_id, 13)).responses[0].partition_responses
    assert result.error_code == UNKNOWN_TOPIC_ID


async def test_a_request_of_many_partitions_is_handled_in_parts(
    broker: Broker, wire: KafkaWire
) -> None:
    async with Admin(broker.servers) as admin:
        await admin.create_topic("wide", partitions=60)
    records = tuple(ProducePartition(number, batch(b"%d" % number)) for number in range(60))
    request = ProduceRequest(None, -1, 30_000, (ProduceTopic("wide", NO_ID, records),))
    results = (await wire.call(request, 9)).responses[0].partition_responses
    assert [(each.index, each.error_code, each.base_offset) for each in results] == [
        (number, 0, 0) for number in range(60)
    ]
    wanted = tuple(
        FetchPartition(number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(60)
    )
    answer = await wire.call(fetch(topic=FetchTopic("wide", NO_ID, wanted)), 12)
    assert [value for each in answer.responses[0].partitions for value in values_of(each)] == [
        b"%d" % number for number in range(60)
    ]


async def test_without_acks_there_is_no_response_and_a_refusal_ends_the_connection(
    wire: KafkaWire,
) -> None:
    await wire.send(produce(batch(b"a"), acks=0), 9)
    (found,) = (await wire.call(fetch(max_wait_ms=30_000), 12)).responses[0].partitions
    assert values_of(found) == [b"a"]
    await wire.send(produce(batch(b"b"), topic="absent", acks=0), 9)
    assert await wire.until_closed() == b""


async def test_a_batch_before_one_that_is_refused_without_acks_has_its_ack(wire: KafkaWire) -> None:
    await wire.send(produce(batch(b"a")), 9)
    await wire.send(produce(batch(b"b"), topic="absent", acks=0), 9)
    assert len(await wire.some_response()) > 0
    assert await wire.until_closed() == b""


async def test_a_request_may_name_every_partition_of_a_broker(wire: KafkaWire) -> None:
    """Kafka's clients do not divide what they ask for."""
    # The first frame of a connection is a small one.
    await topic_id(wire)
    count = 4_000
    names = tuple(MetadataRequestTopic(NO_ID, f"n{number}") for number in range(count))
    described = await wire.call(MetadataRequest(names), 12)
    assert [each.error_code for each in described.topics] == [3] * count
    parts = tuple(FetchTopic(f"n{number}", NO_ID, (from_offset(0),)) for number in range(count))
    fetched = await wire.call(FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=parts), 12)
    assert len(fetched.responses) == count
    unknown = tuple(FetchTopic("", uuid.UUID(int=n + 1), (from_offset(0),)) for n in range(count))
    fetched = await wire.call(FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=unknown), 13)
    assert {each.partitions[0].error_code for each in fetched.responses} == {UNKNOWN_TOPIC_ID}
    await wire.send(MetadataRequest(names + names), 12)
    assert await wire.until_closed() == b""


async def test_a_fetch_waits_for_records_and_names_what_is_wrong(
    broker: Broker, wire: KafkaWire
) -> None:
    await wire.send(fetch(max_wait_ms=60_000), 12)
    async with connect_kafka(broker.port) as other:
        await other.call(produce(batch(b"a")), 9)
    answer = await wire.response(KAFKA_APIS[KafkaApiKey.FETCH], 12)
    assert answer.responses[0].partitions[0].records

    whole = await wire.call(fetch(max_bytes=0), 12)
    assert whole.responses[0].partitions[0].records
    (beyond,) = (await wire.call(fetch(99, max_wait_ms=60_000), 12)).responses[0].partitions
    assert (beyond.error_code, beyond.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    unknown = FetchTopic("", NOBODY, (from_offset(0),))
    (found,) = (
        (await wire.call(fetch(topic=unknown, max_wait_ms=60_000), 13)).responses[0].partitions
    )
    assert found.error_code == UNKNOWN_TOPIC_ID
    early = FetchTopic("t", NO_ID, (from_offset(0, epoch=9),))
    (found,) = (await wire.call(fetch(topic=early), 12)).responses[0].partitions
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", range(1, 12))
async def test_offsets_are_found_by_name_and_by_time(wire: KafkaWire, version: int) -> None:
    await wire.call(produce(batch(b"a", timestamp_ms=1_000)), 9)
    await wire.call(produce(batch(b"b", timestamp_ms=2_000)), 9)

    async def offset_of(timestamp_ms: int, *, topic: str = "t") -> tuple[int, int]:
        wanted = ListOffsetsTopic(topic, (ListOffsetsPartition(0, timestamp=timestamp_ms),))
        answer = await wire.call(ListOffsetsRequest(-1, topics=(wanted,)), version)
        (found,) = answer.topics[0].partitions
        return found.error_code, found.offset

    for asked, offset in ((-1, 2), (-2, 0), (1_500, 1), (9_000, -1)):
        assert await offset_of(asked) == (ErrorCode.NONE, offset)
    for asked, offset, since in (
        (-3, 1, 7),
        (-4, 0, 8),
        (-5, -1, 9),
        (-6, -1, 11),
        (-9, -1, 99),
    ):
        is_known = version >= since
        expected = (ErrorCode.NONE, offset) if is_known else (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert await offset_of(asked) == expected
    twice = ListOffsetsTopic("t", (ListOffsetsPartition(0, timestamp=-1),) * 2)
    answer = await wire.call(ListOffsetsRequest(-1, topics=(twice,)), version)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}
    assert await offset_of(-1, topic="absent") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


# Producers and groups


@pytest.mark.parametrize("version", range(6))
async def test_a_producer_gets_an_id_but_no_transactions(wire: KafkaWire, version: int) -> None:
    first = await wire.call(InitProducerIdRequest(None, 60_000), version)
    second = await wire.call(InitProducerIdRequest(None, 60_000), version)
    assert (first.error_code, second.producer_id - first.producer_id) == (ErrorCode.NONE, 1)
    again = InitProducerIdRequest(None, 60_000, first.producer_id, first.producer_epoch)
    third = await wire.call(again if version >= 3 else InitProducerIdRequest(None, 60_000), version)
    assert (third.producer_id, third.producer_epoch) == (first.producer_id + 2, 0)
    refused = await wire.call(InitProducerIdRequest("tx", 60_000), version)
    assert (refused.error_code, refused.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", range(7))
async def test_a_coordinator_is_found_for_groups_only(
    broker: Broker, wire: KafkaWire, version: int
) -> None:
    request = FindCoordinatorRequest("g", 0, ("g",))
    answer = await wire.call(request, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.port) == (0, 0, broker.port)
    if version:
        answer = await wire.call(FindCoordinatorRequest("tx", 1, ("tx",)), version)
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_syncs_commits_and_leaves(wire: KafkaWire, version: int) -> None:
    await wire.call(FindCoordinatorRequest("g"), 0)
    protocols = (membership.JoinGroupRequestProtocol("range", b"\x00\x01"),)
    request = membership.JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)
    joined = await wire.call(request, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = joined.member_id
        joined = await wire.call(request, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [member.metadata for member in joined.members] == [b"\x00\x01"]

    member, at = joined.member_id, min(version, 5)
    mine = (membership.SyncGroupRequestAssignment(member, b"mine"),)
    sync = membership.SyncGroupRequest("g", 1, member, None, "consumer", "range", mine)
    unnamed = await wire.call(dataclasses.replace(sync, protocol_name=None), 5)
    assert unnamed.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    synced = await wire.call(sync, at)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    beat = membership.HeartbeatRequest("g", 1, member)
    assert (await wire.call(beat, min(version, 4))).error_code == ErrorCode.NONE
    beat.generation_id = 2
    late = await wire.call(beat, min(version, 4))
    assert late.error_code == ErrorCode.ILLEGAL_GENERATION

    committed = await commit(wire, member, 1, max(2, version))
    assert committed == ErrorCode.NONE
    members = (membership.MemberIdentity(member),)
    leave = membership.LeaveGroupRequest("g", member, members)
    left = await wire.call(leave, at)
    assert (left.error_code, [each.error_code for each in left.members]) == (
        0,
        [0] if version >= 3 else [],
    )
    again = await wire.call(leave, at)
    code = again.members[0].error_code if version >= 3 else again.error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID


async def commit(wire: KafkaWire, member: str, generation: int, version: int) -> int:
    """Commits offset 7 of partition 0; the error."""
    partition = offsets.OffsetCommitRequestPartition(0, 7, 0, "note")
    topic = offsets.OffsetCommitRequestTopic("t", await topic_id(wire), (partition,))
    request = offsets.OffsetCommitRequest("g", generation, member, topics=(topic,))
    answer = await wire.call(request, version)
    code = answer.topics[0].partitions[0].error_code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize("version", range(1, 11))
async def test_committed_offsets_are_fetched(wire: KafkaWire, version: int) -> None:
    await wire.call(FindCoordinatorRequest("g"), 0)
    assert await commit(wire, "", -1, max(version, 2)) == ErrorCode.NONE
    known = await topic_id(wire)
    wanted = offsets.OffsetFetchRequestTopics("t", known, (0, 1))
    request = offsets.OffsetFetchRequest(
        "g",
        (offsets.OffsetFetchRequestTopic("t", (0, 1)),),
        (offsets.OffsetFetchRequestGroup("g", topics=(wanted,)),),
    )
    answer = await wire.call(request, version)
    topic = (answer.groups[0] if version >= 8 else answer).topics[0]
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [
        (0, 7),
        (1, -1),
    ]
    assert topic.partitions[0].metadata == "note"
    if version >= 2:
        everything = offsets.OffsetFetchRequest(
            "g", None, (offsets.OffsetFetchRequestGroup("g", topics=None),)
        )
        answer = await wire.call(everything, version)
        topics_found = (answer.groups[0] if version >= 8 else answer).topics
        assert [each.partitions[0].committed_offset for each in topics_found] == [7]
    if version == 10:
        nowhere = offsets.OffsetFetchRequestTopics("", NOBODY, (0,))
        group = offsets.OffsetFetchRequestGroup("g", topics=(nowhere,))
        answer = await wire.call(offsets.OffsetFetchRequest(groups=(group,)), 10)
        assert answer.groups[0].topics[0].partitions[0].error_code == UNKNOWN_TOPIC_ID


async def test_an_offset_below_0_is_stored_and_is_none_for_our_own_clients(
    broker: Broker, wire: KafkaWire
) -> None:
    """KafkaJS has -2 stand for the start of the log when it resets a group."""
    await wire.call(FindCoordinatorRequest("g"), 0)
    partition = offsets.OffsetCommitRequestPartition(0, -2, -1, None)
    topic = offsets.OffsetCommitRequestTopic("t", NOBODY, (partition,))
    answer = await wire.call(offsets.OffsetCommitRequest("g", -1, "", topics=(topic,)), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    wanted = (offsets.OffsetFetchRequestTopic("t", (0,)),)
    answer = await wire.call(offsets.OffsetFetchRequest("g", wanted), 5)
    assert answer.topics[0].partitions[0].committed_offset == -2
    async with Admin(broker.servers) as admin:
        assert await admin.list_group_offsets("g") == {}


# Topics


@pytest.mark.parametrize("version", range(2, 8))
async def test_topics_are_created_each_for_itself(wire: KafkaWire, version: int) -> None:
    """A topic that is wrong in several ways gets the code that Kafka finds first."""
    config = (topics.CreatableTopicConfig("retention.ms", "1000"),)
    placed = (topics.CreatableReplicaAssignment(0, (0,)),)
    nowhere = (topics.CreatableReplicaAssignment(0, (9,)),)
    beyond = topics.CreatableReplicaAssignment(2, (0,))
    unknown = (topics.CreatableTopicConfig("no.such.setting", "1"),)
    request = topics.CreateTopicsRequest(
        (
            topics.CreatableTopic("new", 3, 1, (), config),
            topics.CreatableTopic("t", 1, -1, (beyond,), unknown),
            topics.CreatableTopic("unknown", 1, -1, (beyond,), unknown),
            topics.CreatableTopic("placed", -1, -1, placed),
            topics.CreatableTopic("twofold", 1, -1, placed),
            topics.CreatableTopic("gap", -1, -1, (placed[0], beyond)),
            topics.CreatableTopic("nowhere", -1, -1, nowhere),
            topics.CreatableTopic("twice", 1, 1),
            topics.CreatableTopic("twice", 1, 1),
        )
    )
    answer = await wire.call(request, version)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("new", ErrorCode.NONE),
        ("t", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("unknown", ErrorCode.INVALID_CONFIG),
        ("placed", ErrorCode.NONE),
        ("twofold", ErrorCode.INVALID_REQUEST),
        ("gap", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("nowhere", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    if version >= 5:
        assert answer.topics[0].num_partitions == 3
        settings = {each.name: each for each in answer.topics[0].configs}
        assert (settings["retention.ms"].value, settings["retention.ms"].config_source) == (
            "1000",
            1,
        )
        assert settings["segment.ms"].config_source == 5
    if version >= 7:
        assert answer.topics[0].topic_id == await topic_id(wire, "new")
    tried = topics.CreateTopicsRequest((topics.CreatableTopic("tried", 1, 1),), 1_000, True)
    assert (await wire.call(tried, version)).topics[0].error_code == ErrorCode.NONE
    known = await wire.call(MetadataRequest(None), 1)
    assert [each.name for each in known.topics] == ["new", "placed", "t"]


@pytest.mark.parametrize("version", range(1, 7))
async def test_topics_are_deleted_by_name_or_by_id(wire: KafkaWire, version: int) -> None:
    by_id = topics.DeleteTopicState(None, await topic_id(wire))
    request = topics.DeleteTopicsRequest(
        (by_id, topics.DeleteTopicState(None, NOBODY), topics.DeleteTopicState("absent")),
        ("t", "absent"),
        30_000,
    )
    answer = await wire.call(request, version)
    expected = [("t", ErrorCode.NONE), ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    if version >= 6:
        expected.insert(1, (None, UNKNOWN_TOPIC_ID))  # type: ignore[arg-type]
    assert [(each.name, each.error_code) for each in answer.responses] == expected
    assert (await wire.call(MetadataRequest(None), 1)).topics == ()


async def test_a_topic_is_not_deleted_by_neither_its_name_nor_an_id(wire: KafkaWire) -> None:
    nothing = topics.DeleteTopicsRequest((topics.DeleteTopicState(None, NO_ID),))
    (result,) = (await wire.call(nothing, 6)).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST


async def test_a_topic_is_not_deleted_by_its_name_beside_an_id(wire: KafkaWire) -> None:
    """The id may be that of another topic."""
    both = topics.DeleteTopicState("t", NOBODY)
    answer = await wire.call(topics.DeleteTopicsRequest((both,), (), 30_000), 6)
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST]
    assert [each.name for each in (await wire.call(MetadataRequest(None), 1)).topics] == ["t"]
