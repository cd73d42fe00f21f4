"""RetireBroker."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.retirement import RetireBrokerRequest, RetireBrokerResponse
from millrace_server.api_error import ApiError
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def retire(
    services: Services, context: RequestContext, request: RetireBrokerRequest
) -> RetireBrokerResponse:
    """The next step of a retirement."""
    try:
        left = await services.run(services.administration.retire(context, request.node_id))
    except ApiError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return RetireBrokerResponse(error.code, error.message, -1, False)
    return RetireBrokerResponse(ErrorCode.NONE, None, left.replicas, left.is_retired)
