"""Requests of brokers to the active controller, and of their clients that they pass on."""

from __future__ import annotations

from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.dialects.native.handlers import Handler
from millrace_server.dialects.response_body import Handled
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def handle(services: Services, context: RequestContext, request: Message) -> Message:
    """The answer of the controller."""
    return await services.run(services.requests.handle(request))


def passed_on(handler: Handler) -> Handler:
    """The handler of a client's request, on the active controller alone."""

    def handle(services: Services, context: RequestContext, request: Any) -> Handled:
        if not services.controller.is_here:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return handler(services, context, request)

    return handle
