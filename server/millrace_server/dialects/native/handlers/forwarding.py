"""Requests that only the active controller answers: every other broker passes them on to it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from millrace_protocol.api import APIS
from millrace_protocol.schema import Message
from millrace_server.services.forwarded_topics import FORWARD_TIMEOUT_MS
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

_RESPONSES = {api.request: api.response for api in APIS.values()}
Asynchronous = Callable[[Services, RequestContext, Any], Coroutine[Any, Any, Message]]


def forwarded(handler: Asynchronous) -> Asynchronous:
    """The handler where this broker is the active controller; else the response of that one."""

    async def handle(services: Services, context: RequestContext, request: Any) -> Message:
        if services.controller.is_here:
            return await handler(services, context, request)
        response = _RESPONSES[type(request)]
        return await services.run(
            services.controller.forward(request, response, timeout_ms=FORWARD_TIMEOUT_MS)
        )

    return handle
