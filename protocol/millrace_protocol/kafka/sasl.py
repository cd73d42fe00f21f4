"""SaslHandshake (17) and SaslAuthenticate (36): who a client is (KIP-43, KIP-152, KIP-368).

After version 0 of SaslHandshake the client's messages come without a header, each behind its length
alone, and so do the broker's.
"""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BYTES, INT16, INT64, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class SaslHandshakeRequest(KafkaRequest):
    """Names the mechanism of the exchange that follows."""

    mechanism: str = wire(STRING, "SASL's name of the mechanism")


@message
class SaslHandshakeResponse(Message):
    """Whether the exchange may begin."""

    error_code: int = wire(INT16, "error of the request")
    mechanisms: tuple[str, ...] = wire(array_of(STRING), "mechanisms that the listener has")


@message
class SaslAuthenticateRequest(KafkaRequest):
    """One step of the exchange."""

    flexible_since: ClassVar[int | None] = 2

    auth_bytes: bytes = wire(BYTES, "the client's message of this step")


@message
class SaslAuthenticateResponse(Message):
    """The broker's answer to the step."""

    flexible_since: ClassVar[int | None] = 2

    error_code: int = wire(INT16, "error of the request")
    error_message: str | None = wire(NULLABLE_STRING, "the reason", default=None)
    auth_bytes: bytes = wire(BYTES, "the broker's message of this step", default=b"")
    session_lifetime_ms: int = wire(
        INT64, "the client must authenticate again within; 0: never", unit="ms", since=1, default=0
    )
