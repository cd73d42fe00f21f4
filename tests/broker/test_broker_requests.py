"""Refused requests, and the state that a refusal does not change (wire_spec.md W-2, W-6)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from millrace_protocol.api import APIS, ApiKey, Listener, apis_of
from millrace_protocol.codec import encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.acls import (
    Acl,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from millrace_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    PartitionCount,
)
from millrace_protocol.messages.authenticate import AuthenticateRequest
from millrace_protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaChange,
    QuotaEntityPart,
    QuotaFilter,
)
from millrace_protocol.messages.configs import (
    AlterConfigsRequest,
    ConfigChanges,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from millrace_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest
from millrace_protocol.messages.elections import ElectionPartition, ElectLeadersRequest
from millrace_protocol.messages.fetch import FetchResponse
from millrace_protocol.messages.group_membership import FindCoordinatorResponse
from millrace_protocol.messages.hello import HelloRequest, HelloResponse
from millrace_protocol.messages.leader_epochs import EpochPartition, OffsetForLeaderEpochRequest
from millrace_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from millrace_protocol.messages.log_dirs import DescribeLogDirsRequest
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from millrace_protocol.messages.producer_id import InitProducerIdRequest
from millrace_protocol.messages.quorum import DescribeQuorumRequest
from millrace_protocol.messages.raft_voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from millrace_protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    PartitionReassignment,
)
from millrace_protocol.messages.retirement import RetireBrokerRequest
from millrace_protocol.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    CredentialDeletion,
    CredentialUpsertion,
    DescribeUserScramCredentialsRequest,
)
from millrace_protocol.messages.split_ranges import PartitionRange, SplitRangesRequest
from millrace_protocol.messages.statistics import DescribeStatisticsRequest
from millrace_protocol.schema import Message, wire_fields
from millrace_server.dialects.native.handlers import HANDLERS
from millrace_server.limits import Limits
from millrace_server.testing import Broker
from tests.broker.group_requests import group_requests
from tests.broker.wire import RESPONSES, Wire, batch, connect, fetch_request

CLIENT_APIS = apis_of(Listener.CLIENT)
SAMPLES: dict[ApiKey, Message] = {
    ApiKey.HELLO: HelloRequest("x", "1"),
    ApiKey.METADATA: MetadataRequest(("a",)),
    ApiKey.PRODUCE: ProduceRequest(1, 1_000, (ProducePartition("a", 0, batch(b"v")),)),
    ApiKey.FETCH: fetch_request([("a", 0, 0)]),
    ApiKey.LIST_OFFSETS: ListOffsetsRequest((ListOffsetsPartition("a", 0, -1),)),
    ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest(-1, -1),
    ApiKey.CREATE_TOPICS: CreateTopicsRequest((NewTopic("a", 1, 1, ()),), True),
    ApiKey.DELETE_TOPICS: DeleteTopicsRequest(("a",)),
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest((PartitionCount("a", 2),), True),
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest(("a",)),
    ApiKey.ALTER_CONFIGS: AlterConfigsRequest((ConfigChanges("a", ()),), True),
    ApiKey.DELETE_RECORDS: DeleteRecordsRequest((DeleteRecordsPartition("a", 0, 1),)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest((EpochPartition("a", 0, -1, 0),)),
    ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsRequest(("a",)),
    ApiKey.SPLIT_RANGES: SplitRangesRequest((PartitionRange("a", 0, 0, 1, 1),)),
    ApiKey.DESCRIBE_STATISTICS: DescribeStatisticsRequest(""),
    ApiKey.DESCRIBE_QUORUM: DescribeQuorumRequest(),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsRequest(
        (PartitionReassignment("a", 0, (0,)),), False
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsRequest(None),
    ApiKey.ELECT_LEADERS: ElectLeadersRequest((ElectionPartition("a", 0),), False),
    ApiKey.RETIRE_BROKER: RetireBrokerRequest(0),
    ApiKey.ADD_RAFT_VOTER: AddRaftVoterRequest(9, uuid.UUID(int=0)),
    ApiKey.REMOVE_RAFT_VOTER: RemoveRaftVoterRequest(9, uuid.UUID(int=0)),
    ApiKey.AUTHENTICATE: AuthenticateRequest("SCRAM-SHA-256", b"n,,n=a,r=b"),
    ApiKey.DESCRIBE_ACLS: DescribeAclsRequest((AclFilter(2, 2, "a", None, None, 1, 1),)),
    ApiKey.CREATE_ACLS: CreateAclsRequest((Acl(2, 3, "a", "User:b", "*", 3, 3),)),
    ApiKey.DELETE_ACLS: DeleteAclsRequest((AclFilter(2, 2, "a", None, None, 1, 1),)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasRequest(
        (QuotaFilter("user", 0, "a"),), True
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest(
        (
            QuotaAlteration(
                (QuotaEntityPart("user", "a"),), (QuotaChange("producer_byte_rate", 1e9, True),)
            ),
        ),
        False,
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsRequest(("a",)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest(
        (CredentialDeletion("a", 1),), (CredentialUpsertion("b", 1, 4096, b"salt", b"password"),)
    ),
    **group_requests("g", ""),
}
ABOUT_A_MEMBER = {ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_DELETE}
"""ApiError as a whole, because the group has no member."""
WITH_SECURITY = {
    ApiKey.AUTHENTICATE,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
}
"""The same, because the listener has no SASL, and the broker no authorization."""
NAMED_ONCE = group_requests("g", "").keys() - {
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
}
"""ApiError as a whole, because the name of the one group is too long."""
EVERY_API = pytest.mark.parametrize("key", list(CLIENT_APIS), ids=lambda key: key.name)

EVERY_API_WITH_FIELDS = pytest.mark.parametrize(
    "key",
    [key for key, api in CLIENT_APIS.items() if wire_fields(api.request, 0)],
    ids=lambda key: key.name,
)


def named(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def crowded(count: int) -> list[Message]:
    """Each request that can name many things, naming `count`."""
    names = named(count)
    return [
        MetadataRequest(tuple(names)),
        ProduceRequest(1, 0, tuple(ProducePartition(name, 0, b"") for name in names)),
        fetch_request([(name, 0, 0) for name in names]),
        ListOffsetsRequest(tuple(ListOffsetsPartition(name, 0, -1) for name in names)),
        OffsetForLeaderEpochRequest(tuple(EpochPartition(name, 0, -1, 0) for name in names)),
        SplitRangesRequest(tuple(PartitionRange(name, 0, 0, 0, 1) for name in names)),
        CreateTopicsRequest(tuple(NewTopic(name, 0, 1, ()) for name in names), False),
        DeleteTopicsRequest(tuple(names)),
        CreatePartitionsRequest(tuple(PartitionCount(name, 2) for name in names), False),
        DescribeConfigsRequest(tuple(names)),
        DeleteRecordsRequest(tuple(DeleteRecordsPartition(name, 0, 1) for name in names)),
        AlterConfigsRequest(tuple(ConfigChanges(name, ()) for name in names), False),
        AlterPartitionReassignmentsRequest(
            tuple(PartitionReassignment(name, 0, ()) for name in names), False
        ),
        ElectLeadersRequest(tuple(ElectionPartition(name, 0) for name in names), False),
    ]


def doubled() -> list[Message]:
    """Each request whose entries may stand once, with one twice."""
    return [
        ProduceRequest(1, 0, (ProducePartition("a", 0, batch(b"v")),) * 2),
        CreateTopicsRequest((NewTopic("a", 1, 1, ()),) * 2, False),
        CreatePartitionsRequest((PartitionCount("a", 2),) * 2, False),
        AlterConfigsRequest((ConfigChanges("a", ()),) * 2, False),
        DeleteRecordsRequest((DeleteRecordsPartition("a", 0, 1),) * 2),
        DescribeConfigsRequest((), (0, 0)),
        AlterPartitionReassignmentsRequest((PartitionReassignment("a", 0, (0,)),) * 2, False),
        ElectLeadersRequest((ElectionPartition("a", 0),) * 2, False),
    ]


def test_every_api_of_the_listener_for_clients_has_a_handler_and_a_sample() -> None:
    assert SAMPLES.keys() == HANDLERS.keys() == CLIENT_APIS.keys()


@EVERY_API
async def test_every_api_answers_a_whole_request(wire: Wire, key: ApiKey) -> None:
    """W-2.3: api, version and correlation id come back."""
    await wire.ask(SAMPLES[ApiKey.FIND_COORDINATOR], FindCoordinatorResponse)
    sent = wire.send(SAMPLES[key])
    header, _ = await wire.receive()
    assert (header.api, header.version, header.correlation_id) == (key, 0, sent)
    assert (header.error_code == 0) is (key not in ABOUT_A_MEMBER | WITH_SECURITY)


@EVERY_API
async def test_a_byte_too_many_or_too_few_is_refused_with_its_position(
    wire: Wire, key: ApiKey
) -> None:
    """W-2.5, W-6.6"""
    body = encode(SAMPLES[key], 0)
    wire.send_body(key, body + b"\0")
    code, refusal = await wire.refusal()
    assert code is ErrorCode.INVALID_REQUEST
    # The frame's header takes 16 bytes and the client id "test" 4.
    assert f"at byte {20 + len(body)} of the frame" in refusal.message
    assert (refusal.min_version, refusal.max_version) == (-1, -1)
    if body:
        wire.send_body(key, body[:-1])
        code, refusal = await wire.refusal()
        assert code is ErrorCode.INVALID_REQUEST
        assert "at byte" in refusal.message


@EVERY_API_WITH_FIELDS
async def test_an_empty_body_is_refused(wire: Wire, key: ApiKey) -> None:
    """W-6.6"""
    wire.send_body(key, b"")
    code, refusal = await wire.refusal()
    assert code is ErrorCode.INVALID_REQUEST
    assert "at byte 20 of the frame" in refusal.message


@EVERY_API
async def test_a_version_that_is_not_spoken_is_refused_with_the_range(
    wire: Wire, key: ApiKey
) -> None:
    """W-2.4, W-6.6"""
    wire.send_body(key, b"anything", version=7)
    code, refusal = await wire.refusal()
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert (refusal.min_version, refusal.max_version) == (
        APIS[key].min_version,
        APIS[key].max_version,
    )
    assert "7" in refusal.message


async def test_an_api_that_does_not_exist_is_refused(wire: Wire) -> None:
    """W-6.6"""
    wire.send_body(0x7FFF, b"anything")
    code, refusal = await wire.refusal()
    assert code is ErrorCode.UNKNOWN_API
    assert "32767" in refusal.message


@pytest.mark.parametrize("count", [2**31 - 1, -2, 100_001])
async def test_an_array_count_that_cannot_be_true_is_refused(wire: Wire, count: int) -> None:
    """W-3.5"""
    wire.send_body(ApiKey.DELETE_TOPICS, count.to_bytes(4, "big", signed=True) + bytes(16))
    assert (await wire.refusal())[0] is ErrorCode.INVALID_REQUEST


async def test_a_null_array_is_only_taken_where_the_table_says_so(wire: Wire) -> None:
    """W-3.5, W-4.2"""
    await wire.create("a")
    null = b"\xff\xff\xff\xff"
    wire.send_body(ApiKey.METADATA, null)
    assert [t.name for t in (await wire.answer(MetadataResponse)).topics] == ["a"]
    wire.send_body(ApiKey.DELETE_TOPICS, null)
    assert (await wire.refusal())[0] is ErrorCode.INVALID_REQUEST
    assert await wire.topics() == ["a"]


async def test_requests_that_name_nothing_get_an_empty_answer(wire: Wire) -> None:
    """W-4.0.2"""
    await wire.create("a")
    assert (await wire.ask(MetadataRequest(()), MetadataResponse)).topics == ()
    assert (await wire.ask(fetch_request([], max_wait_ms=1), FetchResponse)).partitions == ()
    assert (await wire.ask(ProduceRequest(-1, 0, ()), ProduceResponse)).partitions == ()
    assert (await wire.ask(CreateTopicsRequest((), False), CreateTopicsResponse)).topics == ()
    assert (await wire.ask(DeleteTopicsRequest(()), DeleteTopicsResponse)).topics == ()
    assert (await wire.ask(DescribeConfigsRequest(()), DescribeConfigsResponse)).topics == ()


@pytest.mark.parametrize(
    "request_",
    [
        *crowded(2_001),
        DescribeConfigsRequest((), tuple(range(2_001))),
        DescribeLogDirsRequest(tuple(named(2_001))),
    ],
    ids=lambda r: type(r).__name__,
)
async def test_more_than_2000_entries_are_refused_whole(wire: Wire, request_: Message) -> None:
    """W-6.4"""
    code, message = await wire.refused(request_)
    sentence = message.replace(",", "")
    assert code is ErrorCode.INVALID_REQUEST
    assert "2001" in sentence
    assert "2000" in sentence


@pytest.mark.parametrize("request_", crowded(2_000), ids=lambda r: type(r).__name__)
async def test_2000_entries_are_answered_one_by_one(wire: Wire, request_: Message) -> None:
    """W-4.0.2, W-6.4"""
    answered: Any = await wire.ask(request_, RESPONSES[type(request_)])
    entries = answered.topics if hasattr(answered, "topics") else answered.partitions
    names = [getattr(entry, "name", None) or entry.topic for entry in entries]
    assert names == named(2_000)
    assert all(entry.error_code for entry in entries)


@pytest.mark.parametrize("request_", doubled(), ids=lambda r: type(r).__name__)
async def test_a_duplicate_entry_is_refused_and_nothing_is_done(
    wire: Wire, request_: Message
) -> None:
    """W-6.6"""
    created = await wire.create("a") if not isinstance(request_, CreateTopicsRequest) else None
    code, sentence = await wire.refused(request_)
    assert code is ErrorCode.INVALID_REQUEST
    assert "'a'" in sentence or "broker 0" in sentence
    assert await wire.topics() == (["a"] if created else [])
    if created:
        assert len((await wire.topic("a")).partitions) == 1
        assert (await wire.fetch("a", 0)).high_watermark == 0


@EVERY_API_WITH_FIELDS
async def test_a_name_of_32_kib_is_answered_in_a_sentence_of_bounded_length(
    wire: Wire, key: ApiKey
) -> None:
    name = "\0" * 32_767
    requests: dict[ApiKey, Message] = {
        ApiKey.HELLO: HelloRequest(name, name),
        ApiKey.METADATA: MetadataRequest((name,)),
        ApiKey.PRODUCE: ProduceRequest(1, 1_000, (ProducePartition(name, 0, batch(b"v")),)),
        ApiKey.FETCH: fetch_request([(name, 0, 0)]),
        ApiKey.LIST_OFFSETS: ListOffsetsRequest((ListOffsetsPartition(name, 0, -1),)),
        ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest(2**63 - 1, 2**15 - 1),
        ApiKey.CREATE_TOPICS: CreateTopicsRequest((NewTopic(name, 1, 1, ()),), False),
        ApiKey.DELETE_TOPICS: DeleteTopicsRequest((name,)),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest((PartitionCount(name, 2),), False),
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest((name,)),
        ApiKey.ALTER_CONFIGS: AlterConfigsRequest((ConfigChanges(name, ()),), False),
        ApiKey.DELETE_RECORDS: DeleteRecordsRequest((DeleteRecordsPartition(name, 0, 1),)),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest(
            (EpochPartition(name, 0, -1, 0),)
        ),
        ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsRequest((name,)),
        ApiKey.SPLIT_RANGES: SplitRangesRequest((PartitionRange(name, 0, 0, 1, 1),)),
        ApiKey.DESCRIBE_STATISTICS: DescribeStatisticsRequest(name),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsRequest(
            (PartitionReassignment(name, 0, (0,)),), False
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsRequest((name,)),
        ApiKey.ELECT_LEADERS: ElectLeadersRequest((ElectionPartition(name, 0),), True),
        ApiKey.RETIRE_BROKER: RetireBrokerRequest(2**31 - 1),
        ApiKey.ADD_RAFT_VOTER: AddRaftVoterRequest(2**31 - 1, uuid.UUID(int=9)),
        ApiKey.REMOVE_RAFT_VOTER: RemoveRaftVoterRequest(2**31 - 1, uuid.UUID(int=9)),
        ApiKey.AUTHENTICATE: AuthenticateRequest(name, name.encode()),
        ApiKey.DESCRIBE_ACLS: DescribeAclsRequest((AclFilter(2, 2, name, name, name, 1, 1),)),
        ApiKey.CREATE_ACLS: CreateAclsRequest((Acl(2, 3, name, name, name, 3, 3),)),
        ApiKey.DELETE_ACLS: DeleteAclsRequest((AclFilter(2, 2, name, name, name, 1, 1),)),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasRequest(
            (QuotaFilter("user", 0, name),), True
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest(
            (QuotaAlteration((QuotaEntityPart(name, name),), (QuotaChange(name, 1.0, False),)),),
            False,
        ),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsRequest((name,)),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest(
            (CredentialDeletion(name, 1),), ()
        ),
        **group_requests(name, name, topic=name, states=(name,)),
    }
    await wire.ask(SAMPLES[ApiKey.FIND_COORDINATOR], FindCoordinatorResponse)
    sent = wire.send(requests[key])
    header, body = await wire.receive()
    assert header.correlation_id == sent
    assert (header.error_code == 0) is (key not in NAMED_ONCE | WITH_SECURITY)
    assert len(body) < 32_767 + 4_096


async def test_a_key_of_32_kib_is_answered_too(wire: Wire) -> None:
    created = await wire.create("a", configs={"\0" * 32_767: "\1" * 32_767})
    assert created.error_code == ErrorCode.INVALID_CONFIG
    assert len(created.error_message or "") <= 1_000


async def test_a_hundred_requests_in_one_write_are_answered_in_order(wire: Wire) -> None:
    """W-2.6, W-6.3: more than the broker works on at once."""
    await wire.create("a")
    sent = []
    for number in range(100):
        match number % 4:
            case 0:
                entry = ProducePartition("a", 0, batch(b"%d" % number))
                sent.append(wire.send(ProduceRequest(-1, 5_000, (entry,))))
            case 1:
                sent.append(wire.send(InitProducerIdRequest(-1, -1)))
            case 2:
                sent.append(wire.send_body(4_242, b""))
            case _:
                sent.append(wire.send(fetch_request([("a", 0, 0)])))
    assert [(await wire.receive())[0].correlation_id for _ in sent] == sent
    assert (await wire.fetch("a", 0)).high_watermark == 25


async def test_a_large_frame_is_refused_before_hello_and_taken_after_it(
    broker: Broker,
) -> None:
    """W-6.1, W-6.2"""
    large = ProduceRequest(-1, 1_000, (ProducePartition("a", 0, bytes(70_000)),))
    async with connect(broker.port, hello=False) as ungreeted:
        assert (await ungreeted.refused(large))[0] is ErrorCode.FRAME_TOO_LARGE
        assert await ungreeted.closed() == b""
    async with connect(broker.port) as greeted:
        (result,) = (await greeted.ask(large, ProduceResponse)).partitions
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_hello_that_is_decoded_in_chunks_lifts_the_limit_on_frames(
    broker: Broker,
) -> None:
    """W-6.1"""
    async with connect(broker.port, hello=False) as greeted:
        await greeted.ask(HelloRequest("x" * 8_000, "1"), HelloResponse)
        large = ProduceRequest(-1, 1_000, (ProducePartition("t", 0, bytes(70_000)),))
        (result,) = (await greeted.ask(large, ProduceResponse)).partitions
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_hello_may_be_repeated_and_its_refusal_lifts_no_limit(broker: Broker) -> None:
    """W-4.1, W-6.1"""
    async with connect(broker.port, hello=False) as ungreeted:
        ungreeted.send_body(ApiKey.HELLO, b"", version=1)
        assert (await ungreeted.refusal())[0] is ErrorCode.UNSUPPORTED_VERSION
        ungreeted.writer.write((65_537).to_bytes(4, "big"))
        assert (await ungreeted.refusal())[0] is ErrorCode.FRAME_TOO_LARGE
    async with connect(broker.port) as greeted:
        first = await greeted.ask(HelloRequest("a", "1"), HelloResponse)
        again = await greeted.ask(HelloRequest("b", "2"), HelloResponse)
        assert first == again
        assert first.node_id == 0
        assert first.cluster_id


async def test_a_connection_too_many_is_refused_with_the_reason() -> None:
    """W-6.6"""
    async with Broker(limits=Limits(connections_max=1)) as broker, connect(broker.port) as first:
        async with connect(broker.port, hello=False) as second:
            second.send(MetadataRequest(()))
            code, refusal = await second.refusal()
            assert code is ErrorCode.BROKER_STOPPING
            assert "1 connections" in refusal.message
            assert await second.closed() == b""
        assert await first.topics() == []


async def test_wrong_magic_closes_without_a_response_to_later_requests(
    broker: Broker, wire: Wire
) -> None:
    """W-2.1"""
    sent = wire.send(MetadataRequest(()))
    wire.writer.write(b"\0\0\0\x0cRM" + bytes(10))
    wire.send(MetadataRequest(()))
    answer = await wire.closed()
    assert answer.count(b"MR") <= 1, "nothing behind the bad frame may be answered"
    assert sent
    async with connect(broker.port) as other:
        assert await other.topics() == []


async def test_concurrent_connections_do_not_see_each_others_answers(broker: Broker) -> None:
    async def talk(number: int) -> None:
        async with connect(broker.port, client_id=b"c%d" % number) as wire:
            name = f"topic-{number}"
            assert (await wire.create(name)).error_code == 0
            for n in range(5):
                result = await wire.produce(name, batch(b"%d" % n))
                assert (result.topic, result.base_offset) == (name, n)

    await asyncio.gather(*(talk(number) for number in range(10)))
