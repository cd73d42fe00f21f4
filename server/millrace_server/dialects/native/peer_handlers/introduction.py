"""What a connection between brokers may send before BrokerHello: nothing."""

from __future__ import annotations

from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.dialects.native.handlers import Handler
from millrace_server.dialects.response_body import Handled
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


def introduced(handler: Handler) -> Handler:
    """The handler, for connections of brokers of this cluster. The others get `ApiError`."""

    def handle(services: Services, context: RequestContext, request: Any) -> Handled:
        if context.broker_id is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "The first request of a connection between brokers is BrokerHello",
            )
        return handler(services, context, request)

    return handle
