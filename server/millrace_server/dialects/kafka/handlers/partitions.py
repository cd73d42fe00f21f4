"""CreatePartitions, DeleteRecords and OffsetForLeaderEpoch."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import delete_records, leader_epochs
from millrace_protocol.kafka import partitions as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.dialects.kafka.handlers.repeated import repeated
from millrace_server.services.delete_records import Deletion
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

CHUNK_EPOCHS = 50
"""Epochs looked up in one chunk, some 200 us."""

THROTTLING_SINCE = 3
"""The version of CreatePartitions whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def create(
    services: Services,
    context: RequestContext,
    request: messages.CreatePartitionsRequest,
    version: int,
) -> messages.CreatePartitionsResponse:
    """Widens each topic for itself."""
    context.knows_throttling = version >= THROTTLING_SINCE
    twice = repeated(topic.name for topic in request.topics)

    async def widen_each() -> tuple[messages.CreatePartitionsTopicResult, ...]:
        results: list[messages.CreatePartitionsTopicResult] = []
        for topic in request.topics:
            result = messages.CreatePartitionsTopicResult(topic.name, ErrorCode.NONE)
            try:
                if topic.name in twice:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "The topic is named more than once")
                has_none = topic.assignments == ()
                await services.topics.add_partitions(
                    context,
                    topic.name,
                    topic.count,
                    assignments=[each.broker_ids for each in topic.assignments or ()],
                    validate_only=request.validate_only or has_none,
                )
                if has_none:
                    message = "There are no assignments; send null to have the replicas placed"
                    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            except ApiError as error:
                result.error_code, result.error_message = kafka_code(error.code), error.message
            results.append(result)
            await services.scheduler.yield_()
        return tuple(results)

    return messages.CreatePartitionsResponse(results=await services.run(widen_each()))


async def delete(
    services: Services,
    context: RequestContext,
    request: delete_records.DeleteRecordsRequest,
    version: int,
) -> delete_records.DeleteRecordsResponse:
    """Moves the start of each partition for itself."""
    deletions = [
        Deletion(topic.name, each.partition_index, each.offset)
        for topic in request.topics
        for each in topic.partitions
    ]
    found = iter(await services.run(services.delete_records.delete(context, deletions)))
    return delete_records.DeleteRecordsResponse(
        topics=tuple(
            delete_records.DeleteRecordsTopicResult(
                topic.name,
                tuple(_deleted(each.partition_index, next(found)) for each in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _deleted(number: int, found: int | ApiError) -> delete_records.DeleteRecordsPartitionResult:
    if isinstance(found, ApiError):
        return delete_records.DeleteRecordsPartitionResult(number, -1, kafka_code(found.code))
    return delete_records.DeleteRecordsPartitionResult(number, found, ErrorCode.NONE)


async def epoch_ends(
    services: Services,
    context: RequestContext,
    request: leader_epochs.OffsetForLeaderEpochRequest,
    version: int,
) -> leader_epochs.OffsetForLeaderEpochResponse:
    """Answers each partition for itself."""
    topics: list[leader_epochs.OffsetForLeaderTopicResult] = []
    count = 0
    for topic in request.topics:
        ends: list[leader_epochs.EpochEndOffset] = []
        for partition in topic.partitions:
            ends.append(_epoch_end(services, context, topic.topic, partition))
            count += 1
            if not count % CHUNK_EPOCHS:
                await services.scheduler.yield_()
        topics.append(leader_epochs.OffsetForLeaderTopicResult(topic.topic, tuple(ends)))
    return leader_epochs.OffsetForLeaderEpochResponse(topics=tuple(topics))


def _epoch_end(
    services: Services,
    context: RequestContext,
    topic: str,
    wanted: leader_epochs.OffsetForLeaderPartition,
) -> leader_epochs.EpochEndOffset:
    number = wanted.partition
    try:
        found = services.offsets.epoch_end(
            context, topic, number, wanted.leader_epoch, current_epoch=wanted.current_leader_epoch
        )
    except ApiError as error:
        return leader_epochs.EpochEndOffset(kafka_code(error.code), number)
    if found is None:
        return leader_epochs.EpochEndOffset(ErrorCode.NONE, number)
    return leader_epochs.EpochEndOffset(ErrorCode.NONE, number, *found)
