"""The input of one connection: bytes in, whole requests out.

Owns what was received and is not handled: the frame reader, the session of the dialect that the
first bytes speak, and the memory of an unfinished frame. Does not know what a request leads to, nor
when the connection may take the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace_server.environment.seams import ReadBuffer
from millrace_server.limits import FRAME_BYTES_MIN
from millrace_server.net.dialect import Peer, Session
from millrace_server.net.memory_account import UNGATED_BYTES, MemoryAccount
from millrace_server.net.response_queue import ResponseQueue
from millrace_server.net.shared import Shared
from millrace_wire.frame_reader import FrameReader


class UnknownDialect(Exception):
    """No dialect begins with the first bytes of the connection."""


class RequestInput:
    """The requests of one peer, in order. `resume` is called when a frame that waited for memory
    may be received."""

    __slots__ = (
        "_resume",
        "_shared",
        "account",
        "bytes_received",
        "has_more",
        "held",
        "is_ended",
        "reader",
        "requests",
        "session",
    )

    def __init__(self, shared: Shared, resume: Callable[[], None]) -> None:
        limits = shared.limits
        self._shared = shared
        self._resume = resume
        self.reader = FrameReader(
            shared.scratch,
            frame_bytes_max=limits.frame_bytes_max_before_hello,
            frame_bytes_min=FRAME_BYTES_MIN,
        )
        self.account = MemoryAccount(shared.memory, limits.buffered_bytes_max, self._on_granted)
        self.session: Session | None = None
        self.bytes_received = 0
        self.requests = 0
        self.has_more = False
        """Whether the reader may hold whole requests."""
        self.held: asyncio.TimerHandle | None = None
        """Until then the next request has to wait."""
        self.is_ended = False
        """Whether the peer has ended its side."""

    @property
    def holds_scarce_memory(self) -> bool:
        """Whether an unfinished frame holds memory that other connections wait for."""
        return self.account.frame_bytes > UNGATED_BYTES and self._shared.memory.waiting_count > 0

    def hold_back(self, until_ms: int) -> None:
        """Takes no request before that moment of the monotonic clock."""
        if self.held is not None:
            self.held.cancel()
        delay_ms = until_ms - self._shared.clock.monotonic_ms()
        self.held = self._shared.loop.call_later(delay_ms / 1000, self._release)

    def received(self, count: int) -> None:
        """The transport wrote `count` bytes into the reader's buffer."""
        self.bytes_received += count
        self._shared.traffic.received_bytes += count
        self.reader.received(count)

    def open_session(self, connection: Peer) -> Session | None:
        """The session of the dialect that recognizes the first bytes; None until it is known.

        Raises `UnknownDialect`.
        """
        first_bytes = self.reader.unread
        if not first_bytes:
            return None
        for dialect in self._shared.dialects:
            recognized = dialect.recognizes(first_bytes)
            if recognized is None:
                return None
            if recognized:
                self.session = dialect.open(connection)
                return self.session
        raise UnknownDialect("no dialect begins with these bytes")

    def next_request(self, session: Session, responses: ResponseQueue) -> ReadBuffer | None:
        """The next whole request, or None when more bytes are needed. Raises `FramingError`.

        What the connection holds for `responses` counts beside its unfinished frame.
        """
        reader = self.reader
        request = session.next_request(reader)
        if request is None:
            if self.is_ended:
                request = session.last_request(reader)
            if request is None:
                self.has_more = False
                wanted = reader.wanted_bytes
                if wanted and self.account.place_frame(wanted, responses.held_bytes):
                    reader.allocate()
                return None
        self.requests += 1
        if reader.owned:
            self.account.end_frame()
        return request

    def discard(self) -> None:
        """Drops what was received; no more requests will be taken."""
        self.reader.discard()
        self.has_more = False
        if self.held is not None:
            self.held.cancel()
            self.held = None
        self.account.drop_frame()

    def disconnect(self) -> None:
        """The connection is lost: `resume` is called no more, and no cycle is left."""
        self.discard()
        self.account.disconnect()
        self._resume = _ignore
        self.session = None

    def _release(self) -> None:
        self.held = None
        self._resume()

    def _on_granted(self) -> None:
        self.reader.allocate()
        self._resume()


def _ignore() -> None:
    """Stands in for the callback of a connection that is gone."""
