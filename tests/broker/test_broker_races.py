"""Concurrent requests, and malformed input."""

from __future__ import annotations

import asyncio
import random
import uuid
from pathlib import Path

import pytest

from millrace_protocol.api import ApiKey, Listener, apis_of
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
    DeleteTopicsRequest,
    NewTopic,
    PartitionCount,
    TopicConfig,
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
)
from millrace_protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest
from millrace_protocol.messages.elections import ElectionPartition, ElectLeadersRequest
from millrace_protocol.messages.fetch import FetchResponse
from millrace_protocol.messages.group_membership import FindCoordinatorResponse
from millrace_protocol.messages.hello import HelloRequest
from millrace_protocol.messages.leader_epochs import EpochPartition, OffsetForLeaderEpochRequest
from millrace_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from millrace_protocol.messages.log_dirs import DescribeLogDirsRequest
from millrace_protocol.messages.metadata import MetadataRequest
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
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
from millrace_protocol.schema import Message
from millrace_server.testing import Broker
from tests.broker.failing_disk import Faults, node_on
from tests.broker.group_requests import group_requests
from tests.broker.wire import Wire, batch, connect, fetch_request, until, values_of

MUTATED: dict[ApiKey, Message] = {
    ApiKey.HELLO: HelloRequest("client", "1"),
    ApiKey.METADATA: MetadataRequest(("t", "u")),
    ApiKey.PRODUCE: ProduceRequest(1, 1_000, (ProducePartition("t", 0, batch(b"one", b"two")),)),
    ApiKey.FETCH: fetch_request([("t", 0, 0), ("t", 1, 0)]),
    ApiKey.LIST_OFFSETS: ListOffsetsRequest((ListOffsetsPartition("t", 0, 1_000),)),
    ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest(0, 0),
    ApiKey.CREATE_TOPICS: CreateTopicsRequest(
        (NewTopic("v", 1, 1, (TopicConfig("retention.ms", "1"),)),), True
    ),
    ApiKey.DELETE_TOPICS: DeleteTopicsRequest(("u", "v")),
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest((PartitionCount("t", 3),), True),
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest(("t", "u"), (0,)),
    ApiKey.ALTER_CONFIGS: AlterConfigsRequest(
        (ConfigChanges("t", (TopicConfig("segment.ms", "5"),)),), True
    ),
    ApiKey.DELETE_RECORDS: DeleteRecordsRequest((DeleteRecordsPartition("u", 0, 1),)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest((EpochPartition("t", 0, 0, 0),)),
    ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsRequest(("t", "u")),
    ApiKey.SPLIT_RANGES: SplitRangesRequest((PartitionRange("t", 0, 0, 1, 4_096),)),
    ApiKey.DESCRIBE_STATISTICS: DescribeStatisticsRequest("millrace_"),
    ApiKey.DESCRIBE_QUORUM: DescribeQuorumRequest(),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsRequest(
        (PartitionReassignment("t", 0, (0,)),), False
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsRequest(("t",)),
    ApiKey.ELECT_LEADERS: ElectLeadersRequest((ElectionPartition("t", 0),), False),
    ApiKey.RETIRE_BROKER: RetireBrokerRequest(9),
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
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsRequest(("a", "b")),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest(
        (CredentialDeletion("a", 1),),
        (CredentialUpsertion("b", 1, 4096, b"salt" * 4, b"password" * 4),),
    ),
    **group_requests("group", "member", topic="t", states=("Stable",)),
}


def mutations(key: ApiKey, count: int) -> list[bytes]:
    """Bodies with bytes changed, cut, repeated; none that waits or may go unanswered."""
    rng = random.Random(int(key))
    whole = encode(MUTATED[key], 0)
    made = []
    for _ in range(count):
        body = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            position = rng.randrange(len(body) or 1)
            match rng.randrange(4):
                case 0:
                    body[position : position + 1] = rng.randbytes(1)
                case 1:
                    body[position : position + 4] = rng.choice(
                        (b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4), b"\x80\0\0\0")
                    )
                case 2:
                    del body[position : position + rng.randint(1, 8)]
                case _:
                    body[position:position] = body[position : position + rng.randint(1, 8)]
            body = body or bytearray(b"\0")
        if key is ApiKey.FETCH:
            body[0:4] = bytes(4)
        elif key is ApiKey.PRODUCE:
            body[0:2] = b"\0\1"
        elif body[-1] != 1 and key in (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS):
            body += b"\1"
        made.append(bytes(body))
    return made


@pytest.mark.parametrize("key", list(apis_of(Listener.CLIENT)), ids=lambda key: key.name)
async def test_no_body_meets_a_bug(wire: Wire, key: ApiKey) -> None:
    """W-6.6.1: whatever the bytes, a typed answer, and the next request is as good as any."""
    for name in ("t", "u"):
        await wire.create(name, partitions=2)
    await wire.produce("t", batch(b"kept"))
    await wire.ask(MUTATED[ApiKey.FIND_COORDINATOR], FindCoordinatorResponse)
    answered = set()
    for body in mutations(key, 300):
        sent = wire.send_body(key, body)
        header, _ = await wire.receive()
        assert header.correlation_id == sent
        assert header.error_code != ErrorCode.UNKNOWN_SERVER_ERROR, body
        answered.add(header.error_code)
    assert ErrorCode.INVALID_REQUEST in answered
    assert values_of(await wire.fetch("t", 0))[0] == b"kept"


async def test_a_producer_that_hangs_up_loses_its_answer_and_not_its_record(
    tmp_path: Path,
) -> None:
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        faults.may_sync.clear()
        partition = node.broker.partitions.get("t", 0)
        async with connect(node.address[1]) as other:
            for n in range(5):
                entry = ProducePartition("t", 0, batch(b"%d" % n))
                other.send(ProduceRequest(-1, 60_000, (entry,)))
            await until(lambda: len(node.broker._produce_purgatory) == 5)
            other.reset()
        await until(lambda: len(node.broker._produce_purgatory) == 0)
        assert partition.high_watermark == 0
        faults.may_sync.set()
        await until(lambda: partition.high_watermark == 5)
        assert values_of(await wire.fetch("t", 0)) == [b"%d" % n for n in range(5)]


async def test_an_append_to_a_topic_that_is_being_deleted_is_answered(tmp_path: Path) -> None:
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        faults.may_sync.clear()
        entry = ProducePartition("t", 0, batch(b"late"))
        sent = wire.send(ProduceRequest(-1, 60_000, (entry,)))
        await until(lambda: len(node.broker._produce_purgatory) == 1)
        async with connect(node.address[1]) as other:
            deleting = asyncio.ensure_future(other.delete("t"))
            faults.may_sync.set()
            (result,) = (await wire.answer(ProduceResponse, sent=sent)).partitions
            assert result.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert (await deleting).error_code == 0
            assert (await wire.produce("t", batch(b"x"))).error_code == (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )


async def test_records_on_their_way_arrive_whole_when_their_topic_is_deleted(
    broker: Broker, wire: Wire
) -> None:
    await wire.create("t")
    value = bytes(range(256)) * 3_900
    for _ in range(12):
        await wire.produce("t", batch(value))
    async with connect(broker.port) as slow:
        sent = slow.send(fetch_request([("t", 0, 0)], max_bytes=1 << 30, partition_bytes=1 << 30))
        connection = list(broker.node.server.connections)[-1]
        await until(lambda: connection.bytes_out > 100_000)
        assert connection.bytes_out < 11_000_000
        assert (await wire.delete("t")).error_code == 0
        assert (await wire.create("t")).error_code == 0
        await wire.produce("t", batch(b"new"))
        (result,) = (await slow.answer(FetchResponse, sent=sent)).partitions
    assert values_of(result) == [value] * 12


async def test_a_half_closed_connection_still_gets_the_response_to_a_parked_fetch(
    wire: Wire,
) -> None:
    """W-4.4.4: a request from a pipe is a request."""
    await wire.create("t")
    sent = wire.send(fetch_request([("t", 0, 0)], max_wait_ms=50))
    wire.writer.write_eof()
    (result,) = (await wire.answer(FetchResponse, sent=sent)).partitions
    assert (result.error_code, len(result.records)) == (0, 0)
    assert await wire.closed() == b""


async def test_many_producers_make_one_dense_log(broker: Broker, wire: Wire) -> None:
    """W-1: offsets are counted without gaps, and each producer's records keep their order."""
    await wire.create("t")

    async def produce(name: int) -> list[int]:
        async with connect(broker.port) as own:
            return [
                (await own.produce("t", batch(b"%d %d" % (name, n), b"-"))).base_offset
                for n in range(20)
            ]

    offsets = await asyncio.gather(*(produce(name) for name in range(8)))
    assert all(given == sorted(given) for given in offsets)
    assert sorted(offset for given in offsets for offset in given) == list(range(0, 320, 2))
    fetched = await wire.fetch("t", 0)
    values = [value or b"" for value in values_of(fetched)[::2]]
    for name, given in enumerate(offsets):
        assert [values[offset // 2] for offset in given] == [
            b"%d %d" % (name, n) for n in range(20)
        ]


async def test_readers_follow_writers_without_a_gap(broker: Broker, wire: Wire) -> None:
    await wire.create("t", configs={"segment.bytes": "2000"})

    async def follow() -> list[bytes | None]:
        seen: list[bytes | None] = []
        async with connect(broker.port) as reader:
            while len(seen) < 200:
                request = fetch_request([("t", 0, len(seen))], max_wait_ms=20_000)
                (result,) = (await reader.ask(request, FetchResponse)).partitions
                assert result.error_code == 0
                seen += values_of(result, offset=len(seen))
        return seen

    readers = [asyncio.ensure_future(follow()) for _ in range(5)]
    for n in range(100):
        await wire.produce("t", batch(b"%d" % n, b"x" * 50))
    expected = [v for n in range(100) for v in (b"%d" % n, b"x" * 50)]
    assert await asyncio.gather(*readers) == [expected] * 5
