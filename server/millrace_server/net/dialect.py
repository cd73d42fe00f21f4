"""What a connection asks of a wire format.

The seam between `net`, which moves bytes, and the dialects, which give them meaning. A dialect is
one folder below `dialects` and one line in `dialects.ALL`.
"""

from __future__ import annotations

from typing import Protocol

from millrace_server.environment.seams import ReadBuffer, Response
from millrace_server.listeners import ListenerConfig
from millrace_server.loop.completion import Completion
from millrace_server.net.pending_response import Handled as Handled
from millrace_server.net.pending_response import PendingResponse
from millrace_wire.frame_reader import FrameReader, FramingError


class Peer(Protocol):
    """The connection, as a session knows it; see `Connection`."""

    peer: str
    """Address and port of the peer."""
    listener: ListenerConfig
    """That it has connected to."""
    principal: str
    """The subject of its certificate, or Kafka's name for a peer that has not authenticated."""

    @property
    def closed(self) -> bool: ...

    def lift_frame_limit(self) -> None: ...

    def stream(self) -> PendingResponse: ...

    def send_part(self, stream: PendingResponse, parts: Response) -> bool: ...

    def drained(self) -> Completion[None]: ...

    def hold_back(self, until_ms: int) -> None: ...

    def admit(self, principal: str) -> str: ...

    def finish(self, reason: str) -> None: ...

    def abort(self, reason: str) -> None: ...


class Session(Protocol):
    """One connection in one dialect, from its first bytes on."""

    def may_overlap(self, reader: FrameReader) -> bool:
        """Whether the next request, of which the first bytes may have arrived, is taken while the
        one before it has no response yet."""

    def next_request(self, reader: FrameReader) -> ReadBuffer | None:
        """The next whole request, or None when more bytes are needed. Raises `FramingError`."""

    def last_request(self, reader: FrameReader) -> ReadBuffer | None:
        """What is left when the peer has ended its input, if it is a request."""

    def handle(self, request: ReadBuffer, *, owned: bool) -> Handled:
        """Handles one request. Unless `owned`, its bytes are valid until the call returns, and
        until a returned coroutine awaits for the first time.

        An exception, also from the coroutine, is a bug: it is reported to the event loop and ends
        the connection. Parts of a response do not change after they are returned.
        """

    def refuse(self, error: FramingError) -> Response:
        """The response to bytes that are no request; the connection ends after it."""

    def refuse_connection(self, reason: str) -> Response:
        """The response to a connection beyond a limit; the connection ends after it."""


class Dialect(Protocol):
    """One wire format. One object serves all connections of a broker."""

    def recognizes(self, first_bytes: ReadBuffer) -> bool | None:
        """Whether a connection that begins with these bytes speaks this dialect.

        None when more bytes are needed to know.
        """

    def open(self, connection: Peer) -> Session:
        """A session for a connection whose first bytes are recognized."""
