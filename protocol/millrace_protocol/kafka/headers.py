"""What stands before each body: in a request whose it is, in a response which one it answers.

The version of a header follows from the api and its version: 2 and 1 for flexible versions, else 1
and 0. The response of ApiVersions always has header 0, so that any client can read it.
"""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT16, INT32, NULLABLE_STRING
from millrace_protocol.schema import Message, message, wire


@message
class RequestHeader(KafkaRequest):
    """Versions 1 and 2. A client that does not give its name sends null."""

    flexible_since: ClassVar[int | None] = 2

    api_key: int = wire(INT16, "the api")
    api_version: int = wire(INT16, "the version of the request and of its response")
    correlation_id: int = wire(INT32, "comes back in the response")
    # Not compact in any version: ApiVersions is read before the version is known to be supported.
    client_id: str | None = wire(NULLABLE_STRING, "name of the client", may_be_compact=False)


@message
class ResponseHeader(Message):
    """Versions 0 and 1."""

    flexible_since: ClassVar[int | None] = 1

    correlation_id: int = wire(INT32, "that of the request")
