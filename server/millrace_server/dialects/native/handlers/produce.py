"""Produce: batches to the append service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answer, Answered, AnswerPieces
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.dialects.native.later import mapped
from millrace_server.net.connection import Connection
from millrace_server.services.produce import ACKS_NONE, PIECE_BATCHES, Produced


def handle(broker: Broker, connection: Connection, request: ProduceRequest) -> Answered:
    """ProduceService; with acks 0 nothing is answered, and a refused batch ends the connection.

    That is the only way to tell such a client that its records went nowhere.
    """
    check_once([(p.topic, p.partition) for p in request.partitions], "partition")
    batches = [(p.topic, p.partition, memoryview(p.records)) for p in request.partitions]
    if len(batches) > PIECE_BATCHES:
        return _in_pieces(broker, connection, request, batches)
    if any(broker.appends.takes_long(*each) for each in batches):
        # They are read after this call. Of many batches the dialect keeps the whole frame.
        kept = [(topic, number, memoryview(bytearray(batch))) for topic, number, batch in batches]
        return _in_pieces(broker, connection, request, kept)
    produced = broker.appends.append(batches, acks=request.acks, timeout_ms=request.timeout_ms)
    return _answer(connection, request, produced)


def _in_pieces(
    broker: Broker,
    connection: Connection,
    request: ProduceRequest,
    batches: Sequence[tuple[str, int, memoryview]],
) -> AnswerPieces:
    produced = yield from broker.appends.append_in_pieces(
        batches, acks=request.acks, timeout_ms=request.timeout_ms
    )
    return _answer(connection, request, produced)


def _answer(
    connection: Connection,
    request: ProduceRequest,
    produced: list[Produced] | asyncio.Future[list[Produced]],
) -> Answer | asyncio.Future[Answer | AnswerPieces] | None:
    if request.acks == ACKS_NONE:
        if isinstance(produced, list) and any(p.code is not ErrorCode.NONE for p in produced):
            connection.abort("a batch sent with acks 0 was refused")
        return None
    if isinstance(produced, list):
        return _response(produced)
    return mapped(produced, _response)


def _response(results: Sequence[Produced]) -> ProduceResponse:
    return ProduceResponse(
        tuple(
            ProducePartitionResult(
                r.topic,
                r.partition,
                r.code,
                r.message,
                r.base_offset,
                r.log_append_time_ms,
                r.log_start_offset,
            )
            for r in results
        )
    )
