"""ListOffsets: the ends of a partition, and the offset of a point in time."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answered, AnswerPieces
from millrace_server.loop.fair_scheduler import cut
from millrace_server.net.connection import Connection
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.services.list_offsets import FoundOffset, find_end, find_offset

PIECE_ENTRIES = 50
"""Ends of partitions looked up in one go, some 200 us."""


def handle(broker: Broker, connection: Connection, request: ListOffsetsRequest) -> Answered:
    """Answers each question for itself; a search by time lets others go between two questions."""
    if all(asked.timestamp_ms in (LATEST, EARLIEST) for asked in request.partitions):
        if len(request.partitions) > PIECE_ENTRIES:
            return _find_in_pieces(broker, request)
        return ListOffsetsResponse(tuple(_find_end(broker, asked) for asked in request.partitions))
    return broker.env.spawn.task(_search(broker, connection, request), name="list offsets")


def _find_in_pieces(broker: Broker, request: ListOffsetsRequest) -> AnswerPieces:
    results: list[ListOffsetsResult] = []
    for piece in cut(request.partitions, PIECE_ENTRIES, lambda asked: asked.topic):
        results += [_find_end(broker, asked) for asked in piece]
        yield None
    return ListOffsetsResponse(tuple(results))


async def _search(
    broker: Broker, connection: Connection, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    results: list[ListOffsetsResult] = []
    for asked in request.partitions:
        if connection.closed:
            break
        await broker.turns.turn()
        try:
            partition = broker.partitions.get(asked.topic, asked.partition)
            found = await find_offset(partition, asked.timestamp_ms, broker.lookups)
        except CORE_ERRORS as error:
            results.append(_refused(asked, error))
        else:
            results.append(_found(asked, partition, found))
    return ListOffsetsResponse(tuple(results))


def _find_end(broker: Broker, asked: ListOffsetsPartition) -> ListOffsetsResult:
    try:
        partition = broker.partitions.get(asked.topic, asked.partition)
    except CORE_ERRORS as error:
        return _refused(asked, error)
    return _found(asked, partition, find_end(partition, asked.timestamp_ms))


def _found(
    asked: ListOffsetsPartition, partition: Partition, found: FoundOffset
) -> ListOffsetsResult:
    return ListOffsetsResult(
        asked.topic,
        asked.partition,
        ErrorCode.NONE,
        None,
        found.timestamp_ms,
        found.offset,
        partition.leader_epoch,
    )


def _refused(asked: ListOffsetsPartition, error: Exception) -> ListOffsetsResult:
    refused = as_api_error(error)
    return ListOffsetsResult(
        asked.topic, asked.partition, refused.code, refused.message, -1, -1, -1
    )
