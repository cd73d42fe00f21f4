"""Authenticate: a client proves who it is, in the steps of a SASL mechanism (RFC 4422)."""

from __future__ import annotations

from millrace_protocol.primitives import BOOLEAN, BYTES, INT64, STRING
from millrace_protocol.schema import Message, Request, message, wire


@message
class AuthenticateRequest(Request):
    """One step of an exchange. The first one begins it, and all name the same mechanism."""

    mechanism: str = wire(STRING, "SASL's name of the mechanism: `SCRAM-SHA-256`")
    auth_bytes: bytes = wire(BYTES, "the client's message of this step")


@message
class AuthenticateResponse(Message):
    """The broker's message of the step. An exchange that fails gets an error response (W-2.4)."""

    auth_bytes: bytes = wire(BYTES, "the broker's message of this step")
    is_complete: bool = wire(BOOLEAN, "whether the client has authenticated")
    session_lifetime_ms: int = wire(
        INT64, "when complete: the client must authenticate again within; 0: never", unit="ms"
    )
