"""Requests that Apache Kafka answers in a way one does not expect; `tests.kafka --beside` found
them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import elections, group_offsets, topics
from millrace_protocol.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace_protocol.kafka.find_coordinator import FindCoordinatorRequest
from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.kafka.producer_ids import InitProducerIdRequest
from millrace_server.testing import Broker
from tests.broker.wire import batch
from tests.kafka.kafka_wire import KafkaWire, connect_kafka, produce

ERROR = ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.fixture
async def wire() -> AsyncIterator[KafkaWire]:
    """A connection to a broker with topic `t`, two partitions, a record in each."""
    async with Broker() as broker, connect_kafka(int(broker.servers.split(":")[1])) as connected:
        new = topics.CreatableTopic("t", 2, 1)
        await connected.call(topics.CreateTopicsRequest((new,), 30_000), 7)
        for partition in range(2):
            await connected.call(produce(batch(b"v"), partition=partition), 9)
        yield connected


def part(partition: int, offset: int, epoch: int = -1) -> FetchPartition:
    return FetchPartition(partition, epoch, offset, partition_max_bytes=1_000)


async def fetched(wire: KafkaWire, *parts: FetchPartition, wait_ms: int = 0) -> list[int]:
    wanted = (FetchTopic("t", NO_ID, parts),) if parts else ()
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1, topics=wanted)
    answer = await wire.call(request, 12)
    return [each.error_code for topic in answer.responses for each in topic.partitions]


async def test_an_offset_out_of_range_is_told_behind_a_response_that_is_full(
    wire: KafkaWire,
) -> None:
    assert await fetched(wire, part(0, 0), part(1, -5)) == [ErrorCode.NONE, ERROR]
    assert await fetched(wire, part(0, 0), part(1, 1)) == [ErrorCode.NONE] * 2


async def test_every_negative_epoch_of_a_fetch_is_none(wire: KafkaWire) -> None:
    assert await fetched(wire, part(0, 0, -7)) == [ErrorCode.NONE]


async def test_a_fetch_of_nothing_does_not_wait(wire: KafkaWire) -> None:
    """It would wait for ever, and the test with it."""
    assert await fetched(wire, wait_ms=2**31 - 1) == []


async def test_a_setting_of_a_new_topic_has_a_value(wire: KafkaWire) -> None:
    null = topics.CreatableTopicConfig("cleanup.policy", None)
    new = topics.CreatableTopic("new", 1, 1, (), (null,))
    answer = await wire.call(topics.CreateTopicsRequest((new,), 30_000), 7)
    assert answer.topics[0].error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 7), (-9, -1)])
async def test_a_producer_has_an_id_and_an_epoch_or_neither(
    wire: KafkaWire, producer_id: int, epoch: int
) -> None:
    answer = await wire.call(InitProducerIdRequest(None, 1_000, producer_id, epoch), 4)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "code"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
async def test_a_commit_in_a_generation_says_that_there_is_no_group(
    wire: KafkaWire, version: int, code: ErrorCode
) -> None:
    while (await wire.call(FindCoordinatorRequest("g"), 3)).error_code:
        pass
    offset = group_offsets.OffsetCommitRequestPartition(0, 1)
    topic = group_offsets.OffsetCommitRequestTopic("t", NO_ID, (offset,))
    request = group_offsets.OffsetCommitRequest("g", 5, "member", topics=(topic,))
    answer = await wire.call(request, version)
    assert answer.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", range(3))
async def test_an_election_of_an_unknown_type_is_refused_for_each_partition(
    wire: KafkaWire, version: int
) -> None:
    wanted = (elections.TopicPartitions("t", (0, 1)),)
    answer = await wire.call(elections.ElectLeadersRequest(9, wanted), version)
    found = answer.replica_election_results[0].partition_result
    codes = [each.error_code for each in found]
    # Version 0 has no types.
    assert set(codes) == {ErrorCode.INVALID_REQUEST if version else ErrorCode.ELECTION_NOT_NEEDED}
