"""A document at an address of HTTP, fetched within bounds of bytes and time.

Owns the bounds: a server that answers a byte at a time holds a thread no longer than one that is
silent. Follows no redirect, which could lead to an address that the operator has not named. The
proxy for https is the environment's; http is for this machine, and goes to it directly. Blocks, so
it runs in a worker thread. Refuses to know what is in the document.
"""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError

from millrace_server.api_error import quoted
from millrace_server.logs import MonotonicClock


class DocumentError(Exception):
    """The document cannot be fetched; the message says why, and goes on after its address."""


def fetch_document(address: str, *, bytes_max: int, time_ms: int, clock: MonotonicClock) -> bytes:
    """What is at `address`, of at most `bytes_max`, within `time_ms`. Raises `DocumentError`.

    The search for the host's addresses ends when the system gives up, and each attempt to connect
    to one of them has `time_ms`.
    """
    deadline_ms = clock.monotonic_ms() + time_ms

    def left_s() -> float:
        left_ms = deadline_ms - clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError(f"the answer takes longer than {time_ms} ms")
        return left_ms / 1000

    opener = urllib.request.build_opener(
        _NoRedirects,
        _Handler(left_s),
        urllib.request.ProxyHandler(
            {scheme: at for scheme, at in urllib.request.getproxies().items() if scheme == "https"}
        ),
    )
    try:
        with opener.open(address, timeout=time_ms / 1000) as response:
            data: bytes = response.read(bytes_max + 1)
    except HTTPError as error:
        error.close()
        raise DocumentError(f"is answered with the status {error.code}") from None
    except (OSError, ValueError, HTTPException) as error:
        raise DocumentError(f"cannot be fetched: {error}") from None
    if len(data) > bytes_max:
        raise DocumentError(f"has more than {bytes_max} bytes")
    return data


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        fp.close()
        raise DocumentError(f"leads to {quoted(newurl)}, and redirects are not followed")


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens connections whose answers are read for as long as `left_s` says."""

    def __init__(self, left_s: Callable[[], float]) -> None:
        super().__init__()
        self._left_s = left_s

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(partial(self._connection, HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(partial(self._connection, HTTPSConnection), request)

    def _connection(self, kind: type[HTTPConnection], host: str, **settings: Any) -> HTTPConnection:
        connection = kind(host, **settings)
        # The type has it as a class; it is called as one.
        response: Any = partial(_Response, self._left_s)
        connection.response_class = response
        return connection


class _Response(HTTPResponse):
    """An answer whose every read ends when no time is left."""

    def __init__(self, left_s: Callable[[], float], socket: Any, *args: Any, **kwargs: Any) -> None:
        timed: Any = _TimedSocket(socket, left_s)
        super().__init__(timed, *args, **kwargs)


class _TimedSocket:
    """The part of a socket that a response uses."""

    def __init__(self, socket: Any, left_s: Callable[[], float]) -> None:
        self._socket = socket
        self._left_s = left_s

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReads(self._socket, self._left_s))


class _TimedReads(io.RawIOBase):
    """The bytes that a socket receives."""

    def __init__(self, socket: Any, left_s: Callable[[], float]) -> None:
        self._socket = socket
        self._received = socket.makefile("rb", buffering=0)
        self._left_s = left_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(self._left_s())
        received: int | None = self._received.readinto(buffer)
        return received

    def close(self) -> None:
        self._received.close()
        super().close()
