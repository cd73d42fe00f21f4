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
from millrace_server.dialects.kafka.handlers.repeated import repeated
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
MAX_TIMESTAMP = -3
FIRST_VERSIONS = {
    -1: 1,
    -2: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""From which version on a timestamp below 0 stands for an offset."""
OF_TIERS = (LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
"""There are none: no offset has the answer, and it is no error."""
CHUNK_ENTRIES = 50
"""Ends of partitions looked up in one chunk, some 200 us."""


async def handle(
    services: Services, context: RequestContext, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse:
    """Answers each partition for itself."""
    topics: list[ListOffsetsTopicResponse] = []
    entries = 0
    for topic in request.topics:
        twice = repeated(partition.partition_index for partition in topic.partitions)
        found: list[ListOffsetsPartitionResponse] = []
        for partition in topic.partitions:
            if entries >= CHUNK_ENTRIES:
                entries = 0
                await services.scheduler.yield_()
            number = partition.partition_index
            if number in twice:
                code = ErrorCode.INVALID_REQUEST
                found.append(ListOffsetsPartitionResponse(number, code, -1, -1))
            else:
                found.append(await _find(services, context, topic.name, partition, version))
            entries += 1
        topics.append(ListOffsetsTopicResponse(topic.name, tuple(found)))
    return ListOffsetsResponse(topics=tuple(topics))


async def _find(
    services: Services,
    context: RequestContext,
    topic: str,
    wanted: ListOffsetsPartition,
    version: int,
) -> ListOffsetsPartitionResponse:
    number, timestamp_ms = wanted.partition_index, wanted.timestamp
    if timestamp_ms < 0 and version < FIRST_VERSIONS.get(timestamp_ms, version + 1):
        return ListOffsetsPartitionResponse(number, ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    if timestamp_ms == EARLIEST_LOCAL:
        # All of a log is on the broker.
        timestamp_ms = EARLIEST
    try:
        found = await services.offsets.find(
            context,
            topic,
            number,
            EARLIEST if timestamp_ms in OF_TIERS else timestamp_ms,
            current_epoch=wanted.current_leader_epoch,
        )
    except ApiError as error:
        return ListOffsetsPartitionResponse(number, kafka_code(error.code), -1, -1)
    if timestamp_ms in OF_TIERS:
        return ListOffsetsPartitionResponse(number, ErrorCode.NONE, -1, -1)
    return ListOffsetsPartitionResponse(
        number, ErrorCode.NONE, found.timestamp_ms, found.offset, found.record_epoch
    )
