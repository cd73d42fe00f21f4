"""Produce: batches to the produce service."""

from __future__ import annotations

from millrace_protocol.messages.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.dialects.response_body import CloseConnection
from millrace_server.services.produce import ACKS_NONE, Produced
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def handle(
    services: Services, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | None:
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
    if request.acks != ACKS_NONE:
        return ProduceResponse(tuple([_result(each) for each in produced]))
    errors = [result.code for result in produced if result.code]
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
