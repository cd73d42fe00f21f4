"""Produce: batches to the produce service."""

from __future__ import annotations

from millrace_protocol.codec import encode
from millrace_protocol.messages.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.dialects.response_body import BodyParts, CloseConnection
from millrace_server.services.produce import ACKS_NONE, CHUNK_BATCHES, Produced
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

VERSION = 0
"""The only version of Produce."""


async def handle(
    services: Services, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | BodyParts | None:
    """Appends; with acks 0 there is no response, and a refused batch ends the connection.

    That is the only way to tell such a client that its records were not stored.
    """
    partitions = request.partitions
    if len(partitions) > 1:
        check_once([(p.topic, p.partition) for p in partitions], "partition")
    # Of more than `CHUNK_BATCHES` batches the dialect keeps the whole frame.
    batches = [(p.topic, p.partition, memoryview(p.records)) for p in partitions]
    produced = await services.produce.append(
        context, batches, acks=request.acks, timeout_ms=request.timeout_ms
    )
    errors = [result.code for result in produced if result.code]
    if request.acks != ACKS_NONE:
        response = ProduceResponse(tuple([_result(each) for each in produced]))
        if len(produced) > CHUNK_BATCHES:
            return response
        body = encode(response, VERSION)
        return BodyParts([body], len(body), errors)
    if errors:
        raise CloseConnection("a batch sent with acks 0 was refused", errors)
    return None


def _result(produced: Produced) -> ProducePartitionResult:
    return ProducePartitionResult(
        produced.topic,
        produced.partition,
        produced.code,
        produced.message,
        produced.base_offset,
        produced.log_append_time_ms,
        produced.log_start_offset,
    )
