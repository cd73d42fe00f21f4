"""SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.context import KafkaContext
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.services.services import Services


def handshake(
    services: Services, context: KafkaContext, request: SaslHandshakeRequest, version: int
) -> SaslHandshakeResponse:
    """Begins an exchange; after version 0 its messages come without headers."""
    mechanisms = services.authentication.mechanisms_of(context)
    try:
        services.authentication.begin(context, request.mechanism)
    except ApiError as error:
        return SaslHandshakeResponse(kafka_code(error.code), mechanisms)
    context.has_bare_tokens = version == 0
    return SaslHandshakeResponse(ErrorCode.NONE, mechanisms)


async def authenticate(
    services: Services, context: KafkaContext, request: SaslAuthenticateRequest, version: int
) -> SaslAuthenticateResponse:
    """Takes one step of the exchange."""
    try:
        progress = await services.authentication.advance(context, request.auth_bytes)
    except ApiError as error:
        return SaslAuthenticateResponse(kafka_code(error.code), error.message)
    return SaslAuthenticateResponse(
        ErrorCode.NONE, None, progress.message, progress.session_lifetime_ms
    )
