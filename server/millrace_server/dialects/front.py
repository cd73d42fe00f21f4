"""The front: one handler for a port, which hands each request to its dialect.

`net` tells lines from frames by the first byte of a connection; what is said before a dialect is
known is said here.
"""

from __future__ import annotations

import asyncio

from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import HEADER_SIZE, LENGTH_SIZE, refusal_frame
from millrace_protocol.messages.refusal import Refusal
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.dialects.native.dialect import NativeDialect
from millrace_server.dialects.text.dialect import TextDialect
from millrace_server.dialects.text.lines import error_line, reply
from millrace_server.environment.seams import Reply
from millrace_server.logs import get_logger
from millrace_server.loop.fair_scheduler import Pieces
from millrace_server.net.connection import Connection
from millrace_server.net.stream import Stream

log = get_logger("millrace.connection")


class Front:
    """Implements `net.handler.RequestHandler` over the dialects of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._limits = broker.config.limits
        self._native = NativeDialect(broker)
        self._text = TextDialect(broker)

    def frame(
        self, connection: Connection, frame: memoryview, owned: bool
    ) -> Reply | asyncio.Future[Reply | Pieces] | Pieces | Stream | None:
        """A frame is native; there is no other framed dialect yet."""
        if len(frame) < HEADER_SIZE:
            length = len(frame) - LENGTH_SIZE
            connection.finish(f"a frame length of {length}, less than a header")
            return self.refuse_frame_length(connection, length)
        return self._native.frame(connection, frame, owned)

    def line(
        self, connection: Connection, line: bytes
    ) -> Reply | asyncio.Future[Reply] | Stream | None:
        """A line is text."""
        return self._text.line(connection, line)

    def refuse_frame_length(self, connection: Connection, length: int) -> Reply:
        """Names the limit. Nothing of the frame was read, so api and correlation id are 0."""
        return [
            _anonymous_refusal(
                ErrorCode.FRAME_TOO_LARGE,
                f"A frame length of {length} is out of bounds: it is at least "
                f"{HEADER_SIZE - LENGTH_SIZE} and at most {self._limits.frame_bytes_max}, before "
                f"Hello {self._limits.frame_bytes_max_before_hello}",
            )
        ]

    def refuse_line_length(self, connection: Connection, line_bytes_max: int) -> Reply:
        """Names the limit."""
        message = f"The line is longer than {line_bytes_max} bytes"
        return reply([error_line(ApiError(ErrorCode.INVALID_REQUEST, message))])

    def refuse_connection(self, connection: Connection, connections_max: int) -> Reply:
        """Says it in a frame: a person reads the message in it, a client decodes it."""
        return [
            _anonymous_refusal(
                ErrorCode.BROKER_STOPPING,
                f"The broker has {connections_max} connections, its limit; try again later",
            )
        ]

    def closed(self, connection: Connection) -> None:
        """Lets the dialects forget the connection."""
        self._native.closed(connection)
        self._text.closed(connection)
        log.debug("connection closed", peer=connection.peer, reason=connection.close_reason)


def _anonymous_refusal(code: ErrorCode, message: str) -> bytes:
    return refusal_frame(
        api=0, version=0, correlation_id=0, error_code=code, refusal=Refusal(message)
    )
