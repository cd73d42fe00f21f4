"""Produce: batches to the produce service."""

from __future__ import annotations

from collections.abc import Sequence

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
)
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.dialects.native.response_body import CloseConnection
from millrace_server.services.produce import ACKS_NONE, Produced
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def handle(
    services: Services, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | None:
    """Appends; with acks 0 there is no response, and a refused batch ends the connection.

    That is the only way to tell such a client that its records were not stored.
    """
    check_once([(p.topic, p.partition) for p in request.partitions], "partition")
    batches = [(p.topic, p.partition, memoryview(p.records)) for p in request.partitions]
    if services.produce.needs_stable_batches(batches):
        # Of many batches the dialect keeps the whole frame, but a few may be long ones.
        batches = [(t, number, memoryview(bytearray(batch))) for t, number, batch in batches]
    produced = await services.produce.append(
        batches, acks=request.acks, timeout_ms=request.timeout_ms
    )
    if request.acks != ACKS_NONE:
        return _response(produced)
    errors = [result.code for result in produced if result.code is not ErrorCode.NONE]
    if errors:
        raise CloseConnection("a batch sent with acks 0 was refused", errors)
    return None


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
