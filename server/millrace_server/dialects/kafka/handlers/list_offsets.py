"""ListOffsets: the ends of a partition, and the offset of a point in time."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millrace_protocol.messages.list_offsets import EARLIEST
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

EARLIEST_LOCAL = -4
LATEST_TIERED = -5
CHUNK_ENTRIES = 50
"""Ends of partitions looked up in one chunk, some 200 us."""


async def handle(
    services: Services, context: RequestContext, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse:
    """Answers each partition for itself."""
    topics: list[ListOffsetsTopicResponse] = []
    entries = 0
    for topic in request.topics:
        found: list[ListOffsetsPartitionResponse] = []
        for partition in topic.partitions:
            if entries >= CHUNK_ENTRIES:
                entries = 0
                await services.scheduler.yield_()
            found.append(await _find(services, topic.name, partition))
            entries += 1
        topics.append(ListOffsetsTopicResponse(topic.name, tuple(found)))
    return ListOffsetsResponse(topics=tuple(topics))


async def _find(
    services: Services, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    number, timestamp_ms = wanted.partition_index, wanted.timestamp
    if timestamp_ms == EARLIEST_LOCAL:
        # All of a log is on the broker.
        timestamp_ms = EARLIEST
    try:
        found = await services.offsets.find(
            topic,
            number,
            EARLIEST if timestamp_ms == LATEST_TIERED else timestamp_ms,
            current_epoch=wanted.current_leader_epoch,
        )
    except ApiError as error:
        return ListOffsetsPartitionResponse(number, kafka_code(error.code), -1, -1)
    if timestamp_ms == LATEST_TIERED:
        return ListOffsetsPartitionResponse(number, ErrorCode.NONE, -1, -1)
    return ListOffsetsPartitionResponse(
        number, ErrorCode.NONE, found.timestamp_ms, found.offset, found.leader_epoch
    )
