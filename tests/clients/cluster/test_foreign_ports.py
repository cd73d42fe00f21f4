"""A client whose address is not a broker's says what is there instead."""

from __future__ import annotations

import asyncio
import http.server
import ssl
import struct
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from millrace import Admin
from millrace._cluster.port_probe import recognize
from millrace.errors import ForeignPort
from millrace_server.testing import Broker
from millrace_wire.foreign_protocols import FIRST_BYTES, resemblance

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, **options: object) -> AsyncIterator[int]:
    """A port whose connections `serve` answers, and then closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def refusal(port: int) -> str:
    """The sentence of a client that would wait for ten minutes."""
    with pytest.raises(ForeignPort) as caught:
        async with Admin(f"127.0.0.1:{port}", connect_timeout_ms=600_000):
            pass
    return str(caught.value)


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_request(self, *_: object) -> None:
        return

    def log_error(self, *_: object) -> None:
        return


@pytest.fixture
def web() -> Iterator[int]:
    """Python's own web server, which waits for the end of a line."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate, which no test verifies."""
    made = tmp_path_factory.mktemp("tls") / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    try:
        subprocess.run(
            [*command.split(), "-keyout", made, "-out", made.with_suffix(".crt")],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("needs openssl")
    made.write_bytes(made.read_bytes() + made.with_suffix(".crt").read_bytes())
    return made


async def test_a_web_server_is_recognized(web: int) -> None:
    assert "it speaks HTTP; give the address of a broker" in await refusal(web)


async def test_a_web_server_that_answers_at_once_is_recognized() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with serving(serve) as port:
        assert "it speaks HTTP" in await refusal(port)


async def test_a_port_with_tls_is_recognized(certificate: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with serving(serve, ssl=context) as port:
        assert "it speaks TLS" in await refusal(port)


async def test_a_kafka_broker_is_recognized() -> None:
    """It closes at an api that it does not know, and answers ApiVersions with the same id."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        api, _, correlation_id = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
        if api == 18:
            body = struct.pack(">ihi", correlation_id, 0, 0)
            writer.write(struct.pack(">i", len(body)) + body)
            await reader.read()

    async with serving(serve) as port:
        assert "it is a Kafka broker" in await refusal(port)


async def test_text_of_another_protocol_is_shown() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read()

    async with serving(serve) as port:
        assert "text that begins with 'SSH-'" in await refusal(port)


async def test_a_broker_that_is_slow_is_waited_for() -> None:
    """Its first connection is held back until the probes of the others have ended."""
    others: list[asyncio.StreamWriter] = []
    probed = asyncio.Event()
    is_first = True

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal is_first
        is_held, is_first = is_first, False
        if is_held:
            await probed.wait()
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", broker.port)
        await asyncio.gather(copy(reader, to_broker), copy(from_broker, writer))
        if not is_held:
            others.append(writer)
            if len(others) == 3:
                probed.set()

    async with Broker() as broker, serving(relay) as port:
        assert await recognize(("127.0.0.1", broker.port)) is None
        async with Admin(f"127.0.0.1:{port}", connect_timeout_ms=600_000) as admin:
            assert await admin.list_topics() == []
        assert len(others) == 3


@pytest.mark.parametrize("first", [b"", b"\0\0\0\x21MR\x80\x12", b"ERR INVA", b"\x15", b"\xff" * 8])
def test_what_may_be_anything_is_not_named(first: bytes) -> None:
    assert resemblance(first[:FIRST_BYTES]) is None
