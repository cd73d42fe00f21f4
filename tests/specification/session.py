"""The session whose frames are the examples of wire_spec.md: every api once, and two errors.

Owns the requests. `record` sends them to a broker; `replay` sends recorded frames to another one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

from millrace_protocol.api import APIS, ApiKey
from millrace_protocol.codec import decode, encode
from millrace_protocol.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from millrace_protocol.framing import HEADER_SIZE, request_frame
from millrace_protocol.messages import (
    acls,
    admin,
    client_quotas,
    configs,
    delete_records,
    elections,
    fetch,
    group_admin,
    group_offsets,
    hello,
    leader_epochs,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producer_id,
    quorum,
    raft_voters,
    reassignments,
    retirement,
    scram_credentials,
    split_ranges,
    statistics,
)
from millrace_protocol.messages import group_membership as groups
from millrace_protocol.records import BatchHeader, Codec, seal
from millrace_protocol.records.varint import varint
from millrace_protocol.schema import Message
from millrace_protocol.scram import ITERATIONS_MIN, ScramMechanism, salt_password
from millrace_protocol.spec.message_tables import slug
from millrace_server.testing import Broker

TIME_MS = 1_760_000_000_000
CLIENT_ID = b"shop"
GZIPPED = bytes.fromhex(
    "1f8b08000000000004ff013000cfff1c000000066164610a2f686f6d650016000202010a"
    "2f63617274002800040406626f6201020c736f75726365067765627d30e6c730000000"
)
"""`_records()` through gzip; written down, because versions of gzip make different bytes."""
SUBSCRIPTION = encode_subscription(ConsumerSubscription(("clicks",), None))
ASSIGNMENT = encode_assignment(ConsumerAssignment((TopicPartitions("clicks", (0,)),), None))
SALT = b"salt of a user  "
MEMBER = (45_000, 300_000)
KEYS = {api.request: key for key, api in APIS.items()}


class Exchange(NamedTuple):
    """A request and its response, as they went over the wire."""

    name: str
    request: bytes
    response: bytes


def broker() -> Broker:
    """A broker as the session wants it: new, and without housekeeping of old records."""
    return Broker(
        advertise="127.0.0.1:9092",
        housekeeping_interval_ms=86_400_000,
        authorization="on",
        super_users="User:ANONYMOUS",
    )


class Client:
    """One connection, which keeps what went over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.exchanges: list[Exchange] = []

    @classmethod
    @asynccontextmanager
    async def connect(cls, broker: Broker) -> AsyncIterator[Client]:
        """A connection to the broker."""
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            await writer.wait_closed()

    async def send(self, name: str, frame: bytes) -> bytes:
        """Sends a frame; the body of the response."""
        self._writer.write(frame)
        length = await self._reader.readexactly(4)
        response = length + await self._reader.readexactly(int.from_bytes(length, "big"))
        self.exchanges.append(Exchange(name, frame, response))
        return response[HEADER_SIZE:]

    async def ask(self, request: Message, name: str = "", *, version: int = 0) -> bytes:
        """Sends a request; the body of the response."""
        key = KEYS[type(request)]
        frame = request_frame(
            api=key,
            version=version,
            correlation_id=len(self.exchanges) + 1,
            client_id=CLIENT_ID,
            body=encode(request, 0),
        )
        return await self.send(name or slug(key), frame)


async def record() -> list[Exchange]:
    """The exchanges with a new broker."""
    async with broker() as running, Client.connect(running) as client:
        for request in _records_and_offsets():
            await client.ask(request)
        given = decode(
            APIS[ApiKey.INIT_PRODUCER_ID].response,
            await client.ask(producer_id.InitProducerIdRequest(-1, -1)),
            0,
        )
        assert isinstance(given, producer_id.InitProducerIdResponse)
        idempotent = batch(GZIPPED, Codec.GZIP, (given.producer_id, given.producer_epoch, 0))
        await client.ask(_produce(idempotent), "produce-idempotent-gzip")
        await _group(client)
        for request in _topics():
            await client.ask(request)
        await client.ask(_fetch(99), "fetch-error")
        await client.ask(_fetch(0), "error-response", version=9)
        deletion = delete_records.DeleteRecordsPartition("clicks", 0, 2)
        await client.ask(delete_records.DeleteRecordsRequest((deletion,)))
        epoch = leader_epochs.EpochPartition("clicks", 0, -1, 0)
        await client.ask(leader_epochs.OffsetForLeaderEpochRequest((epoch,)))
        await client.ask(log_dirs.DescribeLogDirsRequest(("clicks",)))
        for change in _changes():
            await client.ask(change)
        await client.ask(admin.DeleteTopicsRequest(("clicks",)))
        await client.ask(statistics.DescribeStatisticsRequest("millrace_purgatory"))
        await client.ask(quorum.DescribeQuorumRequest())
        return client.exchanges


async def replay(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """The same requests to another broker, which gives another member id."""
    old = new = b""
    async with broker() as running, Client.connect(running) as client:
        for name, request, response in exchanges:
            body = await client.send(name, request.replace(old, new) if old else request)
            if name == "join-group-new":
                old, new = _member_id(response[HEADER_SIZE:]), _member_id(body)
        return client.exchanges


def _member_id(body: bytes) -> bytes:
    joined = decode(groups.JoinGroupResponse, body, 0)
    return joined.member_id.encode()


def _records_and_offsets() -> Iterable[Message]:
    settings = (admin.TopicConfig("retention.ms", "86400000"),)
    return (
        hello.HelloRequest("raw-client", "1.0"),
        admin.CreateTopicsRequest((admin.NewTopic("clicks", 1, -1, settings),), False),
        _produce(batch(_records())),
        _fetch(1),
        metadata.MetadataRequest(("clicks", "nope")),
        list_offsets.ListOffsetsRequest(
            (
                list_offsets.ListOffsetsPartition("clicks", 0, list_offsets.LATEST),
                list_offsets.ListOffsetsPartition("clicks", 0, TIME_MS + 1),
            )
        ),
        split_ranges.SplitRangesRequest((split_ranges.PartitionRange("clicks", 0, 0, 3, 1 << 20),)),
    )


async def _group(client: Client) -> None:
    await client.ask(groups.FindCoordinatorRequest(("hourly",)))
    member_id = _member_id(await client.ask(_join(""), "join-group-new")).decode()
    await client.ask(_join(member_id))
    assignments = (groups.MemberAssignment(member_id, ASSIGNMENT),)
    member = ("hourly", 1, member_id, None)
    await client.ask(groups.SyncGroupRequest(*member, "consumer", "range", assignments))
    await client.ask(groups.HeartbeatRequest(*member))
    commit = (group_offsets.CommitPartition("clicks", 0, 3, 0, "ada"),)
    await client.ask(group_offsets.OffsetCommitRequest(*member, commit))
    await client.ask(group_offsets.OffsetFetchRequest("hourly", None))
    await client.ask(group_admin.ListGroupsRequest(()))
    await client.ask(group_admin.DescribeGroupsRequest(("hourly",)))
    leaving = (groups.LeavingMember(member_id, None, "closed"),)
    await client.ask(groups.LeaveGroupRequest("hourly", leaving))
    partitions = (group_offsets.GroupPartition("clicks", 0),)
    await client.ask(group_offsets.OffsetDeleteRequest("hourly", partitions))
    await client.ask(group_admin.DeleteGroupsRequest(("hourly",)))


def _topics() -> Iterable[Message]:
    change = (admin.TopicConfig("retention.ms", None),)
    return (
        admin.CreatePartitionsRequest((admin.PartitionCount("clicks", 3),), False),
        configs.AlterConfigsRequest((configs.ConfigChanges("clicks", change),), False),
        configs.DescribeConfigsRequest(("clicks",), ()),
    )


def _changes() -> Iterable[Message]:
    """Of a cluster of one, broker 0: the first partition stays, the second cannot move."""
    wanted = (
        reassignments.PartitionReassignment("clicks", 0, (0,)),
        reassignments.PartitionReassignment("clicks", 1, (0, 9)),
    )
    pencil = salt_password(ScramMechanism.SCRAM_SHA_256, "pencil", SALT, ITERATIONS_MIN)
    ada = scram_credentials.CredentialUpsertion("ada", 1, ITERATIONS_MIN, SALT, pencil)
    return (
        scram_credentials.AlterUserScramCredentialsRequest((), (ada,)),
        scram_credentials.DescribeUserScramCredentialsRequest(None),
        acls.CreateAclsRequest((acls.Acl(2, 3, "clicks", "User:ada", "*", 3, 3),)),
        acls.DescribeAclsRequest((acls.AclFilter(2, 2, "clicks", None, None, 1, 1),)),
        acls.DeleteAclsRequest((acls.AclFilter(2, 1, None, "User:ada", None, 1, 1),)),
        client_quotas.AlterClientQuotasRequest(
            (
                client_quotas.QuotaAlteration(
                    (
                        client_quotas.QuotaEntityPart("client-id", None),
                        client_quotas.QuotaEntityPart("user", "ada"),
                    ),
                    (client_quotas.QuotaChange("producer_byte_rate", 1e6, False),),
                ),
            ),
            validate_only=False,
        ),
        client_quotas.DescribeClientQuotasRequest(
            (client_quotas.QuotaFilter("user", 0, "ada"),), strict=False
        ),
        reassignments.AlterPartitionReassignmentsRequest(wanted, may_replace=False),
        reassignments.ListPartitionReassignmentsRequest(None),
        elections.ElectLeadersRequest((elections.ElectionPartition("clicks", 0),), False),
        retirement.RetireBrokerRequest(0),
        raft_voters.AddRaftVoterRequest(9, uuid.UUID(int=0)),
        raft_voters.RemoveRaftVoterRequest(0, uuid.UUID(int=0)),
    )


def _join(member_id: str) -> Message:
    protocols = (groups.JoinProtocol("range", SUBSCRIPTION),)
    return groups.JoinGroupRequest("hourly", *MEMBER, member_id, None, "consumer", protocols, None)


def _produce(made: bytes) -> Message:
    return produce.ProduceRequest(-1, 30_000, (produce.ProducePartition("clicks", 0, made),))


def _fetch(offset: int) -> Message:
    entry = fetch.FetchPartition("clicks", 0, -1, offset, 1 << 20)
    return fetch.FetchRequest(500, 1, 1 << 20, (entry,))


def batch(
    payload: bytes, codec: Codec = Codec.NONE, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    """A batch of the three records, put together by hand: the encoder is not asked."""
    head = BatchHeader(0, 49 + len(payload), -1, 2, 0, codec, 2, TIME_MS, TIME_MS + 2, *producer, 3)
    made = bytearray(head.pack() + payload)
    seal(made)
    return bytes(made)


def _records() -> bytes:
    """Three records: with a key, without one, and a deletion with a header."""
    header = varint(1) + varint(6) + b"source" + varint(3) + b"web"
    return (
        _record(0, b"ada", b"/home") + _record(1, None, b"/cart") + _record(2, b"bob", None, header)
    )


def _record(index: int, key: bytes | None, value: bytes | None, headers: bytes = b"\0") -> bytes:
    def sized(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\0" + varint(index) + varint(index) + sized(key) + sized(value) + headers
    return varint(len(body)) + body
