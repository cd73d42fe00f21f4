"""One request of HTTP/1.1 on a connection, its response, and the end of the connection.

    receiving ──► answering ──► closing
        └─────────(refused)────────┘

Owns the bounds of a peer: the time and the bytes of a request, the time of its response, and the
time in which the peer takes that and closes. h11 knows the syntax (RFC 9112). Each connection has
one request: a scrape comes every few seconds, and a connection that is kept open would hold a
descriptor for less than a millisecond that it saves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple, Protocol, cast

import h11

from millrace_server.environment.seams import Spawn
from millrace_server.logs import get_logger

log = get_logger("millrace.monitoring")
REQUEST_S = 5
"""From connect to a whole request."""
REQUEST_BYTES_MAX = 8 << 10
"""Prometheus sends some 300."""
ANSWER_S = 10
"""Prometheus waits as long, unless it is told otherwise."""
CLOSE_S = 5
"""From the response to the peer's end of the connection."""
DISCARDED_BYTES_MAX = 1 << 20
"""Of what a peer sends behind its request. Closing on unread input would send a reset, which
destroys a refusal that the peer has not read yet; and reading without a bound would cost as much as
the peer likes."""
METHODS = ("GET", "HEAD")


class Request(NamedTuple):
    """A request of one of the `METHODS`."""

    target: str
    accept: str


@dataclass(frozen=True, slots=True)
class Response:
    """Status, media type and body, and headers beside those that every response has."""

    status: HTTPStatus
    media_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def sentence(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Response:
    """A response for a person."""
    return Response(status, "text/plain; charset=utf-8", f"{text}\n".encode(), headers)


class Owner(Protocol):
    """The listener, as a connection knows it."""

    def opened(self, connection: HttpConnection) -> bool:
        """There is another connection; False if it is one too many."""

    def lost(self, connection: HttpConnection) -> None:
        """A connection that was opened is gone."""


class HttpConnection(asyncio.Protocol):
    """Lives from `connection_made` to `connection_lost`; `end` ends it early."""

    def __init__(
        self, owner: Owner, spawn: Spawn, answer: Callable[[Request], Awaitable[Response]]
    ) -> None:
        self._owner = owner
        self._spawn = spawn
        self._answer = answer
        self._http = h11.Connection(h11.SERVER)
        self._transport: asyncio.Transport
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None
        self._has_request = self._has_answered = self._is_peer_done = self._is_head = False
        self.answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._owner.opened(self):
            self._transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(REQUEST_S, self._on_late_request)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += len(data)
        if self._has_request:
            if self._received > DISCARDED_BYTES_MAX:
                self._transport.abort()
        elif self._received > REQUEST_BYTES_MAX:
            self._refuse(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"A request has at most {REQUEST_BYTES_MAX} bytes here",
            )
        else:
            self._read(data)

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`: a peer that ends its side may still read."""
        self._is_peer_done = True
        return self._has_request and not self._has_answered

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._set_timer(None)
        if self.answering is not None:
            self.answering.cancel()
        self._owner.lost(self)

    def end(self) -> None:
        """Ends the connection, whatever it is about to do."""
        self._transport.abort()

    def _read(self, data: bytes) -> None:
        self._http.receive_data(data)
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._refuse(HTTPStatus(error.error_status_hint), f"HTTP is spoken here: {error}")
            return
        if not isinstance(event, h11.Request):
            return
        method = event.method.decode("ascii")
        if method not in METHODS:
            self._refuse(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"Nothing can be changed here; ask with {' or '.join(METHODS)}",
                ("Allow", ", ".join(METHODS)),
            )
            return
        self._has_request = True
        self._is_head = method == "HEAD"
        self._set_timer(None)
        headers = dict(event.headers)
        request = Request(
            event.target.decode("ascii"), headers.get(b"accept", b"").decode("latin-1")
        )
        self.answering = self._spawn.task(self._respond(request), name="monitoring request")

    async def _respond(self, request: Request) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                response = await self._answer(request)
        except TimeoutError:
            response = sentence(
                HTTPStatus.SERVICE_UNAVAILABLE, f"The broker had no answer within {ANSWER_S} s"
            )
        except Exception:
            log.exception("request for metrics failed", target=request.target)
            response = sentence(HTTPStatus.INTERNAL_SERVER_ERROR, "The broker's log has the error")
        self._send(response)

    def _refuse(self, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> None:
        self._has_request = True
        self._send(sentence(status, text, *headers))

    def _send(self, response: Response) -> None:
        if self._transport.is_closing():
            return
        status = response.status
        fields = [
            ("Content-Type", response.media_type),
            ("Content-Length", str(len(response.body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
            *response.headers,
        ]
        head = h11.Response(status_code=status, headers=fields, reason=status.phrase.encode())
        sent = self._http.send(head) or b""
        # The length frames the body; a response to HEAD has the length alone.
        self._transport.write(sent if self._is_head else sent + response.body)
        self._has_answered = True
        if self._is_peer_done:
            self._transport.close()
        else:
            self._transport.write_eof()
        self._set_timer(CLOSE_S)

    def _set_timer(self, seconds: float | None) -> None:
        """Ends the connection so much later, and not when it was to end before."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, self.end)

    def _on_late_request(self) -> None:
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"No request came within {REQUEST_S} s")
