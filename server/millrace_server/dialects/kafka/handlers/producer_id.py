"""InitProducerId: identities for idempotent producers."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import is_passing, kafka_code
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

NONE = -1
"""A client without a producer id has no epoch either."""


async def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    """Gives a new id, whichever the client has. There are no transactions."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(0, ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NONE) is not (request.producer_epoch == NONE):
        return InitProducerIdResponse(0, ErrorCode.INVALID_REQUEST)
    try:
        producer_id, epoch = await services.producer_ids.give(context, NONE, NONE)
    except ApiError as error:
        # Of what may pass Kafka's clients repeat the request only for this code.
        passes = is_passing(error)
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if passes else kafka_code(error.code)
        return InitProducerIdResponse(0, code)
    return InitProducerIdResponse(0, ErrorCode.NONE, producer_id, epoch)
