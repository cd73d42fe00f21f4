"""Requests that Apache Kafka answers in a way one does not expect; `tests.kafka --beside` found
them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import configs, elections, group_offsets, topics
from millrace_protocol.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace_protocol.kafka.find_coordinator import FindCoordinatorRequest
from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.kafka.producer_ids import InitProducerIdRequest
from millrace_server.testing import Broker
from tests.broker.wire import batch, sequenced
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


async def test_only_the_first_batch_of_a_response_may_be_larger_than_its_bounds(
    broker: Broker,
) -> None:
    """librdkafka drops a connection whose response is larger than it allows, and asks again."""
    async with connect_kafka(broker.port) as wire:
        new = topics.CreatableTopic("many", 8, 1)
        await wire.call(topics.CreateTopicsRequest((new,), 30_000), 7)
        large = batch(b"v" * 10_000)
        for partition in range(8):
            for _ in range(2):
                await wire.call(produce(large, topic="many", partition=partition), 9)

        async def sizes(of_partition: int, of_all: int, session: tuple[int, int]) -> list[int]:
            parts = tuple(
                FetchPartition(number, fetch_offset=0, partition_max_bytes=of_partition)
                for number in range(8)
            )
            request = FetchRequest(
                max_wait_ms=2**31 - 1,
                min_bytes=1 << 20,
                max_bytes=of_all,
                session_id=session[0],
                session_epoch=session[1],
                topics=(FetchTopic("many", NO_ID, parts),) if session[1] <= 0 else (),
            )
            answer = await wire.call(request, 12)
            session_ids.append(answer.session_id)
            found = {
                part.partition_index: len(part.records)
                for topic in answer.responses
                for part in topic.partitions
            }
            return [found.get(number, 0) // len(large) for number in range(8)]

        session_ids: list[int] = []
        none = (0, -1)
        assert await sizes(1, 1 << 20, none) == [1, 0, 0, 0, 0, 0, 0, 0]
        assert await sizes(1 << 20, 1, none) == [1, 0, 0, 0, 0, 0, 0, 0]
        assert await sizes(len(large), 3 * len(large) - 1, none) == [1, 1, 0, 0, 0, 0, 0, 0]
        assert await sizes(len(large), 1 << 20, none) == [1] * 8
        # In a session those that were left out are the next.
        assert await sizes(1, 1 << 20, (0, 0)) == [1, 0, 0, 0, 0, 0, 0, 0]
        (session_id,) = session_ids[-1:]
        assert await sizes(1, 1 << 20, (session_id, 1)) == [0, 1, 0, 0, 0, 0, 0, 0]
        assert await sizes(1, 1 << 20, (session_id, 2)) == [0, 0, 1, 0, 0, 0, 0, 0]


async def test_a_producer_goes_on_in_a_partition_that_does_not_know_it(wire: KafkaWire) -> None:
    """As in Kafka: after the topic was deleted and created anew, or its records are gone."""
    producer = await wire.call(InitProducerIdRequest(None, 1_000), 4)

    async def outcome(sequence: int, *values: bytes) -> tuple[int, int]:
        sent = sequenced(producer.producer_id, producer.producer_epoch, sequence, *values)
        answer = await wire.call(produce(sent), 9)
        (found,) = answer.responses[0].partition_responses
        return found.error_code, found.base_offset

    assert await outcome(7, b"a", b"b") == (ErrorCode.NONE, 1)
    assert await outcome(7, b"a", b"b") == (ErrorCode.NONE, 1)
    assert await outcome(9, b"c") == (ErrorCode.NONE, 3)
    assert (await outcome(11, b"d"))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_there_are_no_settings_of_client_metrics(wire: KafkaWire) -> None:
    resources = tuple(configs.DescribeConfigsResource(kind, "t", None) for kind in (16, 2))
    answer = await wire.call(configs.DescribeConfigsRequest(resources), 4)
    of_metrics, of_topic = answer.results
    assert (of_metrics.error_code, of_metrics.configs) == (ErrorCode.NONE, ())
    assert of_topic.error_code == ErrorCode.NONE
    assert of_topic.configs


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
