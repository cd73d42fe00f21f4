"""An answer that is sent piece by piece for as long as the peer listens.

Owns the sender's side of one slot. Knows nothing of what is streamed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millrace_server.environment.seams import Reply, release_slices

if TYPE_CHECKING:
    from millrace_server.net.connection import Connection
    from millrace_server.net.response_queue import Slot


class Stream:
    """One open answer; made by `Connection.stream`, returned by the handler.

    Pieces keep the order of answers: they wait for the answers to earlier requests, and later
    requests are answered after `finish`. The connection ends it by itself when it closes;
    `ended` tells.
    """

    __slots__ = ("_connection", "_slot", "ended")

    def __init__(self, connection: Connection, slot: Slot) -> None:
        self._connection = connection
        self._slot = slot
        self.ended = False

    def send(self, parts: Reply) -> bool:
        """Sends a piece; False asks the sender to await `room()` before the next one.

        A sender that does not listen is cut off when the connection's memory limit is reached.
        Pieces of an ended stream are dropped.
        """
        if self.ended:
            release_slices(parts)
            return False
        return self._connection.send_piece(self._slot, parts)

    def room(self) -> asyncio.Future[None]:
        """Done when all that was sent has left, or the stream has ended."""
        return self._connection.room()

    def finish(self, parts: Reply | None = None) -> None:
        """Sends the last piece; nothing happens when the stream has ended already."""
        if self.ended:
            if parts:
                release_slices(parts)
            return
        self._connection.end_stream(self, self._slot, parts or [])
