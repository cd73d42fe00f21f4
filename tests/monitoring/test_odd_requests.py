"""Slow, large and odd peers of the listener for metrics: the broker ends them, and goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace import Admin
from millrace.errors import MillraceError
from millrace_server.monitoring import http_connection, server
from millrace_server.monitoring.server import CONNECTIONS_MAX
from millrace_server.testing import Broker, BrokerThread
from millrace_wire.foreign_protocols import KAFKA_REQUEST, TLS_CLIENT_HELLO
from tests.broker.wire import batch, connect, until
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.monitoring.http_client import address, ask, exchange, parsed, scrape

NATIVE_HELLO = bytes.fromhex("00000019 4d52 0012 0000 00000007 00026d65 0004746f6f6c 0003312e30")
"""What a client of millrace sends first."""


@pytest.fixture
async def broker(broker: Broker) -> AsyncIterator[Broker]:
    """After each test it serves its clients, and Prometheus."""
    yield broker
    async with connect(broker.port) as wire:
        await wire.create("after")
        assert (await wire.produce("after", batch(b"v"))).error_code == 0
    assert (await ask(broker.metrics_url, "/health/ready")).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get"])
async def test_nothing_but_get_and_head_is_answered(broker: Broker, method: str) -> None:
    answer = await ask(broker.metrics_url, "/metrics", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.text == "Nothing can be changed here; ask with GET or HEAD\n"


@pytest.mark.parametrize(
    "path", ["/", "/metrics/", "/metric", "/../metrics", "//[", "*", "/%6detrics"]
)
async def test_another_path_is_not_found_and_the_paths_are_named(broker: Broker, path: str) -> None:
    answer = await ask(broker.metrics_url, path)
    assert answer.status == 404
    assert "/metrics, /health" in answer.text


@pytest.mark.parametrize(
    "target", ["/metrics?name[]=millrace_ready", "http://broker:9464/metrics", "/metrics#top"]
)
async def test_the_rest_of_a_target_means_nothing(broker: Broker, target: str) -> None:
    assert (await ask(broker.metrics_url, target)).value("millrace_ready") == 1


async def test_head_has_the_length_and_no_body(broker: Broker) -> None:
    whole = await ask(broker.metrics_url, "/health/live")
    head = await ask(broker.metrics_url, "/health/live", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers == whole.headers
    assert int(head.headers["content-length"]) == len(whole.body)


async def test_a_connection_has_one_request(broker: Broker) -> None:
    request = b"GET /health/live HTTP/1.1\r\nHost: test\r\n\r\n"
    answer = parsed(await exchange(broker.metrics_url, request * 3))
    assert answer.headers["connection"] == "close"
    assert answer.json == {"live": True}


async def test_a_peer_that_ends_its_side_gets_its_answer(broker: Broker) -> None:
    request = b"GET /metrics HTTP/1.0\r\n\r\n"
    answer = parsed(await exchange(broker.metrics_url, request, ends=True))
    assert answer.value("millrace_ready") == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (TLS_CLIENT_HELLO, 400),
        (KAFKA_REQUEST, 400),
        (NATIVE_HELLO, 400),
        (b"GET\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * http_connection.REQUEST_BYTES_MAX, 431),
        (b"GET /" + b"x" * http_connection.REQUEST_BYTES_MAX, 431),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 5_000, 431),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, bytes) else str(value),
)
async def test_what_is_no_request_is_refused_with_a_sentence(
    broker: Broker, sent: bytes, status: int
) -> None:
    answer = parsed(await exchange(broker.metrics_url, sent))
    assert answer.status == status
    assert answer.text.count("\n") == 1


@pytest.fixture(scope="module")
def thread() -> Iterator[BrokerThread]:
    with BrokerThread(metrics_listen="0") as running:
        yield running


@given(sent=st.binary(max_size=200) | st.builds(bytes.__add__, st.just(b"GET "), st.binary()))
def test_no_bytes_keep_a_connection_or_harm_the_broker(thread: BrokerThread, sent: bytes) -> None:
    with socket.create_connection(address(thread.metrics_url), HANG_TIMEOUT_S) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        with suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                received += part
    assert not received or parsed(received).status >= 400
    with socket.create_connection(address(thread.metrics_url), HANG_TIMEOUT_S) as connection:
        connection.sendall(b"GET /health/ready HTTP/1.0\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_request_that_does_not_end_is_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_S", 0)
    answer = parsed(await exchange(broker.metrics_url, b"GET /metrics HTTP/1.1\r\nHost: "))
    assert (answer.status, answer.text) == (408, "No request came within 0 s\n")
    monkeypatch.undo()


async def test_a_peer_that_stays_after_its_answer_is_disconnected(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "CLOSE_S", 0)
    await ask(broker.metrics_url, "/health/live")
    reader, writer = await asyncio.open_connection(*address(broker.metrics_url))
    writer.write(b"GET /health/live HTTP/1.0\r\n\r\n")
    # This side does not end, and the broker's listener has no connection any more.
    await until(lambda: connections(broker) == 1)
    await until(lambda: connections(broker) == 0)
    writer.close()
    del reader


async def test_a_peer_that_sends_on_behind_its_request_is_disconnected(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "DISCARDED_BYTES_MAX", 100_000)
    reader, writer = await asyncio.open_connection(*address(broker.metrics_url))
    writer.write(b"GET /health/live HTTP/1.0\r\n\r\n")
    await reader.readline()
    with pytest.raises(ConnectionError):
        while True:
            writer.write(bytes(10_000))
            await writer.drain()
            await asyncio.sleep(0)
    writer.close()


async def test_connections_beyond_the_limit_are_closed(broker: Broker) -> None:
    held = [
        await asyncio.open_connection(*address(broker.metrics_url)) for _ in range(CONNECTIONS_MAX)
    ]
    for _, writer in held:
        writer.write(b"GET ")
    await until(lambda: connections(broker) == CONNECTIONS_MAX)
    assert await exchange(broker.metrics_url, b"GET /health/live HTTP/1.0\r\n\r\n") == b""
    for _, writer in held:
        writer.close()
    await until(lambda: connections(broker) == 0)


async def test_a_scrape_that_takes_too_long_is_an_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "ANSWER_S", 0)
    answer = await ask(broker.metrics_url, "/metrics")
    assert (answer.status, answer.text) == (503, "The broker had no answer within 0 s\n")
    monkeypatch.undo()


async def test_a_bug_is_an_error_and_in_the_log(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server, "encode", fail)
    answer = await ask(broker.metrics_url, "/metrics")
    assert (answer.status, answer.text) == (500, "The broker's log has the error\n")
    monkeypatch.undo()


async def test_many_scrapes_at_a_time_are_all_answered(broker: Broker) -> None:
    answers = await asyncio.gather(*(scrape(broker.metrics_url) for _ in range(CONNECTIONS_MAX)))
    assert {answer.value("millrace_ready") for answer in answers} == {1}


async def test_a_broker_that_stops_ends_the_connections_of_its_listener(broker: Broker) -> None:
    reader, writer = await asyncio.open_connection(*address(broker.metrics_url))
    writer.write(b"GET ")
    await until(lambda: connections(broker) == 1)
    await broker.stop()
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    await broker.start()


async def test_a_client_of_millrace_is_told_that_it_speaks_http(broker: Broker) -> None:
    servers = broker.metrics_url.removeprefix("http://")
    with pytest.raises(MillraceError, match="it speaks HTTP"):
        async with Admin(servers, request_timeout_ms=60_000) as admin:
            await admin.list_topics()


def connections(broker: Broker) -> int:
    """Connections of the listener for metrics."""
    monitoring = broker._monitoring
    assert monitoring is not None
    return len(monitoring._connections)
