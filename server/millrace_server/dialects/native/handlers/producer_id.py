"""InitProducerId: identities for idempotent producers."""

from __future__ import annotations

from millrace_protocol.messages.producer_id import InitProducerIdRequest, InitProducerIdResponse
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Gives a new id, or the next epoch of one the client holds."""
    producer_id, epoch = await services.producer_ids.give(
        context, request.producer_id, request.producer_epoch
    )
    return InitProducerIdResponse(producer_id, epoch)
