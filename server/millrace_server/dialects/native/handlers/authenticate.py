"""Authenticate."""

from __future__ import annotations

from millrace_protocol.messages.authenticate import AuthenticateRequest, AuthenticateResponse
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def handle(
    services: Services, context: RequestContext, request: AuthenticateRequest
) -> AuthenticateResponse:
    """Takes one step of an exchange; a failure is an error response, and ends the connection."""
    progress = await services.authentication.authenticate(
        context, request.mechanism, request.auth_bytes
    )
    return AuthenticateResponse(
        progress.message, progress.is_complete, progress.session_lifetime_ms
    )
