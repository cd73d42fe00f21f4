"""Requests that are sent before those ahead of them have responses: each sees their effect."""

from __future__ import annotations

from typing import Any

from millrace_protocol.codec import decode, decode_leading
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import group_offsets, topics
from millrace_protocol.kafka.apis import KAFKA_APIS
from millrace_protocol.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from millrace_protocol.kafka.find_coordinator import FindCoordinatorRequest
from millrace_protocol.kafka.headers import ResponseHeader
from millrace_protocol.kafka.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millrace_protocol.kafka.metadata import NO_ID, MetadataRequest
from millrace_protocol.schema import Message
from millrace_server.testing import Broker
from tests.broker.wire import batch
from tests.kafka.kafka_wire import KafkaWire, connect_kafka, produce

VERSIONS: dict[str, int] = {
    "CreateTopicsRequest": 6,
    "FetchRequest": 12,
    "ListOffsetsRequest": 6,
    "MetadataRequest": 9,
    "OffsetCommitRequest": 8,
    "OffsetFetchRequest": 7,
    "ProduceRequest": 9,
}
"""All have tags in their headers."""
APIS = {api.request.__name__: api for api in KAFKA_APIS.values()}


async def pipelined(wire: KafkaWire, *requests: Message) -> list[Any]:
    """Sends all requests, then reads the responses."""
    names = [type(request).__name__ for request in requests]
    for request, name in zip(requests, names, strict=True):
        await wire.send(request, VERSIONS[name])
    responses = []
    for name in names:
        frame = await wire.some_response()
        _, position = decode_leading(ResponseHeader, frame, 1)
        responses.append(decode(APIS[name].response, frame[position:], VERSIONS[name]))
    return responses


def flushes(broker: Broker) -> int:
    return broker.statistics().count("millrace_flush_duration_seconds")


def end_of_t(number: int = 0) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(number, timestamp=-1)
    return ListOffsetsRequest(-1, topics=(ListOffsetsTopic("t", (wanted,)),))


async def test_a_committed_offset_is_there_for_the_request_behind(wire: KafkaWire) -> None:
    while (await wire.call(FindCoordinatorRequest("g"), 3)).error_code:
        pass
    fetch = group_offsets.OffsetFetchRequest(
        "g", (group_offsets.OffsetFetchRequestTopic("t", (0,)),)
    )
    for offset in range(1, 11):
        of_t = group_offsets.OffsetCommitRequestPartition(0, offset)
        commit = group_offsets.OffsetCommitRequest(
            "g", topics=(group_offsets.OffsetCommitRequestTopic("t", NO_ID, (of_t,)),)
        )
        committed, fetched = await pipelined(wire, commit, fetch)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert fetched.topics[0].partitions[0].committed_offset == offset


async def test_what_was_produced_is_before_the_end_that_is_asked_for_behind_it(
    wire: KafkaWire,
) -> None:
    for end_offset in range(1, 11):
        produced, found = await pipelined(wire, produce(batch(b"v")), end_of_t())
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert found.topics[0].partitions[0].offset == end_offset


async def test_a_topic_is_there_for_the_request_behind_its_creation(wire: KafkaWire) -> None:
    for number in range(3):
        name = f"new-{number}"
        create = topics.CreateTopicsRequest((topics.CreatableTopic(name, 1, 1),), 30_000)
        created, produced = await pipelined(wire, create, produce(batch(b"v"), topic=name))
        assert created.topics[0].error_code == ErrorCode.NONE
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_batches_that_follow_each_other_are_synced_together(broker: Broker) -> None:
    """Each would wait for a sync of its own if it waited for the response before it."""
    async with connect_kafka(broker.port) as wire:
        await wire.call(produce(batch(b"v")), 9)
        before = flushes(broker)
        responses = await pipelined(wire, *[produce(batch(b"v")) for _ in range(50)], end_of_t())
        offsets = [each.responses[0].partition_responses[0].base_offset for each in responses[:-1]]
        assert offsets == [*range(1, 51)]
        assert responses[-1].topics[0].partitions[0].offset == 51
        assert flushes(broker) - before < 25


async def test_a_request_behind_a_fetch_that_waits_is_answered_after_it(wire: KafkaWire) -> None:
    of_t = FetchTopic("t", NO_ID, (FetchPartition(0, partition_max_bytes=1_000),))
    waiting = FetchRequest(max_wait_ms=500, min_bytes=1, topics=(of_t,))
    fetched, described, produced = await pipelined(
        wire, waiting, MetadataRequest(()), produce(batch(b"v"))
    )
    assert fetched.responses[0].partitions[0].records == b""
    assert described.brokers
    assert produced.responses[0].partition_responses[0].base_offset == 0


async def test_a_long_request_behind_a_batch_waits_for_its_ack(wire: KafkaWire) -> None:
    """Its frame has memory of its own, in which its first bytes are looked at."""
    numbers = range(1_500)
    for end_offset in range(1, 6):
        wanted = tuple(ListOffsetsPartition(number, timestamp=-1) for number in numbers)
        request = ListOffsetsRequest(-1, topics=(ListOffsetsTopic("t", wanted),))
        produced, found = await pipelined(wire, produce(batch(b"v")), request)
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        partitions = found.topics[0].partitions
        assert len(partitions) == len(numbers)
        assert partitions[0].offset == end_offset
