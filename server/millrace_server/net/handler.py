"""What a connection asks of whoever understands its bytes.

The seam between `net/`, which moves whole requests and answers, and the dialects, which give
them meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from millrace_server.environment.seams import Reply

if TYPE_CHECKING:
    from millrace_server.loop.fair_scheduler import Later, Pieces
    from millrace_server.net.connection import Connection
    from millrace_server.net.stream import Stream


class RequestHandler(Protocol):
    """Turns requests into answers, synchronously; what takes more than some 200 us is `Pieces`.

    An exception out of `frame` or `line`, or in a returned future, is a bug: it is reported to
    the event loop and ends the connection. A peer that broke the protocol gets a reply that
    says so, after a call of `connection.finish(reason)`.

    A returned future may still complete after the connection is gone; its slices are released
    then. Parts that were handed over are not changed any more.
    """

    def frame(
        self, connection: Connection, frame: memoryview, owned: bool
    ) -> Reply | Later | Pieces | Stream | None:
        """One whole frame with its length field. Unless `owned`, it is good only until return."""

    def line(self, connection: Connection, line: bytes) -> Reply | Later | Pieces | Stream | None:
        """One line of text without its line ending."""

    def refuse_frame_length(self, connection: Connection, length: int) -> Reply:
        """What to say about a frame length (read unsigned) out of bounds, before closing."""

    def refuse_line_length(self, connection: Connection, line_bytes_max: int) -> Reply:
        """What to say about a line that is too long, before closing."""

    def refuse_connection(self, connection: Connection, connections_max: int) -> Reply:
        """What to say when there are too many connections. Its dialect is not known yet."""

    def closed(self, connection: Connection) -> None:
        """The connection is gone, for `connection.close_reason`; called exactly once."""
