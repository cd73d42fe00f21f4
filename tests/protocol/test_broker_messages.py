"""Messages between brokers: which listener has them, their limits, and records without a copy."""

from __future__ import annotations

import uuid
from typing import cast

import pytest

from millrace_protocol.api import APIS, Api, ApiKey, Listener, apis_of
from millrace_protocol.codec import Decoder, Encoder, decode, encode, encode_parts
from millrace_protocol.errors import WireError
from millrace_protocol.messages.quorum import FetchSnapshotResponse, QuorumFetchResponse
from millrace_protocol.messages.replica_fetch import (
    ForgottenPartition,
    ReplicaFetchPartition,
    ReplicaFetchPartitionResult,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from millrace_protocol.schema import BrokerRequest, Message, Request

TOPIC_ID = uuid.UUID(int=7)
SLICE_BYTES = 70_000


class Slice:
    """Bytes that are elsewhere: in a file."""

    def __len__(self) -> int:
        return SLICE_BYTES


def quorum_response(records: object) -> QuorumFetchResponse:
    ids = (uuid.UUID(int=1), 7, 1)
    return QuorumFetchResponse(*ids, 0, 5, 9, -1, -1, -1, -1, cast(memoryview, records))


def replica_response(*records: object) -> ReplicaFetchResponse:
    return ReplicaFetchResponse(
        0,
        None,
        tuple(
            ReplicaFetchPartitionResult(
                TOPIC_ID, number, 0, None, 9, 0, -1, -1, cast(memoryview, each)
            )
            for number, each in enumerate(records)
        ),
    )


def test_a_listener_has_its_own_apis_and_both_have_what_brokers_pass_on() -> None:
    """W-12"""
    clients, brokers = apis_of(Listener.CLIENT), apis_of(Listener.BROKER)
    assert clients.keys() & brokers.keys() == {
        ApiKey.HELLO,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ELECT_LEADERS,
        ApiKey.RETIRE_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
    }
    assert clients.keys() | brokers.keys() == APIS.keys()


@pytest.mark.parametrize("entries_max", [1, 100])
@pytest.mark.parametrize(
    ("make", "count"), [(quorum_response, 1), (replica_response, 3)], ids=["quorum", "replica"]
)
def test_responses_between_brokers_may_hold_slices_of_files_for_records(
    make: type[Message], count: int, entries_max: int
) -> None:
    slices = [Slice() for _ in range(count)]
    response = make(*slices)
    encoder = Encoder(response, 0)
    while not encoder.step(entries_max):
        pass
    for parts in (encoder.parts, encode_parts(response, 0)):
        assert [part for part in parts if isinstance(part, Slice)] == slices
        body = b"".join(bytes(SLICE_BYTES) if isinstance(part, Slice) else part for part in parts)
        assert decode(type(response), body, 0) == make(*(bytes(SLICE_BYTES) for _ in slices))


def test_a_follower_may_name_as_many_partitions_as_a_response_holds() -> None:
    """W-12.0.2"""
    count = BrokerRequest.array_max
    assert (count, BrokerRequest.elements_max) == (Message.array_max, Message.elements_max)
    assert count > Request.array_max
    partitions = (ReplicaFetchPartition(TOPIC_ID, 1, 3, 9, 2, 0),) * count
    forgotten = (ForgottenPartition(TOPIC_ID, 2),) * 3
    request = ReplicaFetchRequest(2, 41, True, 500, 1 << 20, partitions, forgotten)
    body = encode(request, 0)
    decoder = Decoder(ReplicaFetchRequest, body, 0)
    while not decoder.step(1_000):
        pass
    assert decoder.result == request
    too_many = body[:21] + (count + 1).to_bytes(4, "big") + body[25:] + bytes(44)
    with pytest.raises(WireError, match="partitions: array of 100,001 elements"):
        decode(ReplicaFetchRequest, too_many, 0)


@pytest.mark.parametrize("api", apis_of(Listener.BROKER).values(), ids=lambda api: api.name)
def test_only_requests_that_name_partitions_have_the_limits_of_a_response(api: Api) -> None:
    """W-12.0.2"""
    names_partitions = api.key in (
        ApiKey.ASSIGN_REPLICAS,
        ApiKey.ALTER_PARTITION,
        ApiKey.REPLICA_FETCH,
    )
    assert issubclass(api.request, BrokerRequest if names_partitions else Request)


def test_a_field_may_have_the_name_of_a_variable_of_the_reader() -> None:
    response = FetchSnapshotResponse(0, None, 900, 300, b"part")
    body = encode(response, 0)
    decoder = Decoder(FetchSnapshotResponse, body, 0)
    assert decoder.step(10)
    assert decoder.result == decode(FetchSnapshotResponse, body, 0) == response
