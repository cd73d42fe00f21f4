"""A document of HTTP: fetched within bounds, and from no other place than its address."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from millrace_server.net.web_document import DocumentError, fetch_document
from tests.web_server import OK, WebServer

BYTES_MAX = 1000
TIME_MS = 10_000


class Clock:
    """A clock that the server sets."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


@pytest.fixture
def server() -> Iterator[WebServer]:
    running = WebServer()
    yield running
    running.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fetch(server: WebServer, clock: Clock) -> bytes:
    return fetch_document(server.address, bytes_max=BYTES_MAX, time_ms=TIME_MS, clock=clock)


@pytest.mark.parametrize(
    "answer",
    [
        b"Content-Length: 4\r\n\r\nkeys",
        b"\r\nkeys",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nke\r\n2\r\nys\r\n0\r\n\r\n",
    ],
)
def test_a_document_is_fetched(server: WebServer, clock: Clock, answer: bytes) -> None:
    server.says(OK, answer)
    assert fetch(server, clock) == b"keys"
    assert server.requests == [b"GET /keys HTTP/1.1"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("target", ["/other", "http://127.0.0.1:1/", "https://127.0.0.1:1/"])
def test_no_redirect_is_followed(server: WebServer, clock: Clock, status: int, target: str) -> None:
    server.says(f"HTTP/1.1 {status} Look there\r\nLocation: {target}\r\n\r\n".encode())
    with pytest.raises(DocumentError, match=r"leads to 'http.*and redirects are not followed"):
        fetch(server, clock)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "opening",
    [OK + b"X-Slow: ", OK + b"\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n", b""],
)
def test_an_answer_that_drips_has_no_more_time_than_another(
    server: WebServer, clock: Clock, opening: bytes
) -> None:
    """Each byte takes a second."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(opening)
        for _ in range(900):
            clock.now_ms += 1_000
            connection.sendall(b"x")

    server.answer = drip
    with pytest.raises(DocumentError, match="the answer takes longer than 10000 ms"):
        fetch(server, clock)


@pytest.mark.parametrize("opening", [OK + b"\r\n", OK + b"Content-Length: 1001\r\n\r\n"])
def test_a_document_that_is_too_long_is_refused_and_not_cut(
    server: WebServer, clock: Clock, opening: bytes
) -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(opening)
        while True:
            connection.sendall(bytes(1 << 16))

    server.answer = endless
    with pytest.raises(DocumentError, match="has more than 1000 bytes"):
        fetch(server, clock)
    server.says(OK, b"\r\n", bytes(BYTES_MAX))
    assert fetch(server, clock) == bytes(BYTES_MAX)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "cannot be fetched: Remote end closed"),
        (b"something\r\n\r\n", "cannot be fetched: something"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "is answered with the status 404"),
        (b"HTTP/1.1 302 Found\r\n\r\n", "is answered with the status 302"),
        (OK + b"X: " + bytes(100_000) + b"\r\n\r\n", "cannot be fetched: got more than"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nke", "cannot be fetched: Incomplete"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nlots\r\n", "cannot be fetched: "),
    ],
)
def test_an_answer_that_is_none_is_an_error_with_a_reason(
    server: WebServer, clock: Clock, answer: bytes, why: str
) -> None:
    server.says(answer)
    with pytest.raises(DocumentError, match=why):
        fetch(server, clock)


def test_an_address_that_nobody_listens_at_is_an_error(clock: Clock) -> None:
    for address in ("http://127.0.0.1:1/keys", "https://127.0.0.1:1/keys"):
        with pytest.raises(DocumentError, match=r"cannot be fetched: .*refused"):
            fetch_document(address, bytes_max=BYTES_MAX, time_ms=TIME_MS, clock=clock)


def test_http_goes_to_this_machine_and_https_through_the_proxy(
    server: WebServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", f"http://{server.host}")
    server.says(OK, b"\r\nkeys")
    assert fetch(server, clock) == b"keys"
    server.says(b"HTTP/1.1 403 Forbidden\r\n\r\n")
    with pytest.raises(DocumentError, match=r"cannot be fetched: .*403"):
        fetch_document(
            "https://issuer.example/keys", bytes_max=BYTES_MAX, time_ms=TIME_MS, clock=clock
        )
    assert server.requests[-1].startswith(b"CONNECT issuer.example:443 ")
