"""Whole requests in, answers out in order, on real sockets and both event loops."""

from __future__ import annotations

import asyncio
import hashlib
import random
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace_server.environment.seams import Response
from millrace_server.limits import Limits
from millrace_server.machine import SystemClock
from millrace_server.net.connection import Connection
from millrace_server.net.listener import OsNet
from millrace_server.net.tls import TlsFiles
from tests.server.net.conftest import Answer, CountedFile, Serve, frame_of, until


async def test_frames_sent_byte_by_byte_are_answered_whole(serve: Serve) -> None:
    place = await serve()
    peer = await place.connect()
    for byte in frame_of(b"MR first") + frame_of(b"MR second"):
        await peer.send(bytes([byte]))
        await asyncio.sleep(0)
    expected = frame_of(b"MR first") + frame_of(b"MR second")
    assert await peer.receive(len(expected)) == expected
    assert place.handler.frames == 2


async def test_lines_are_told_from_frames_by_the_first_byte(serve: Serve) -> None:
    place = await serve()
    peer = await place.connect()
    await peer.send(b"HELP\r\nLIST\n")
    assert await peer.receive(10) == b"HELP\nLIST\n"
    assert place.handler.frames == 0


async def test_line_without_a_line_feed_is_answered_at_the_end_of_input(serve: Serve) -> None:
    place = await serve()
    peer = await place.connect()
    await peer.send(b"LIST\nHELP")
    peer.end_input()
    assert await peer.receive_to_end() == b"LIST\nHELP\n"


async def test_answers_keep_the_order_of_requests_whatever_becomes_ready_first(
    serve: Serve,
) -> None:
    place = await serve()
    waiting: list[tuple[bytes, asyncio.Future[Response]]] = []

    def answer(connection: Connection, frame: bytes) -> Answer:
        kind = frame[4:8]
        if kind == b"none":
            return None
        if kind == b"soon":
            return [frame[:6], frame[6:]]
        future = asyncio.get_running_loop().create_future()
        waiting.append((frame, future))
        return future

    place.handler.on_frame = answer
    peer = await place.connect()
    choices = random.Random(7)
    frames = [
        frame_of(choices.choice([b"soon", b"late", b"none"]) + b"%04d" % number)
        for number in range(60)
    ]
    await peer.send(b"".join(frames))
    await until(lambda: place.handler.frames == len(frames))
    choices.shuffle(waiting)
    for frame, future in waiting:
        future.set_result([frame])
        await asyncio.sleep(0)
    expected = b"".join(frame for frame in frames if frame[4:8] != b"none")
    assert len(waiting) > 10
    assert await peer.receive(len(expected)) == expected


async def test_large_frame_is_owned_and_small_ones_around_it_are_not(serve: Serve) -> None:
    place = await serve()
    place.handler.on_frame = lambda connection, frame: [hashlib.sha256(frame).digest()]
    peer = await place.connect()
    (await place.connected()).lift_frame_limit()
    frames = [
        frame_of(b"MR small one"),
        frame_of(random.Random(1).randbytes(3_000_000)),
        frame_of(b"MR small two"),
    ]
    await peer.send(b"".join(frames))
    expected = b"".join(hashlib.sha256(frame).digest() for frame in frames)
    assert await peer.receive(len(expected)) == expected
    assert place.handler.owned == [False, True, False]


async def test_view_that_a_handler_keeps_beyond_its_call_is_dead(serve: Serve) -> None:
    place = await serve()
    kept: list[memoryview] = []

    def keep(connection: Connection, frame: memoryview, owned: bool) -> Answer:
        kept.append(frame)
        return [b"kept"]

    place.handler.frame = keep  # type: ignore[method-assign]
    peer = await place.connect()
    await peer.send(frame_of(b"MR hello"))
    assert await peer.receive(4) == b"kept"
    with pytest.raises(ValueError, match="released"):
        bytes(kept[0])


async def test_a_peer_that_ends_its_input_still_gets_pending_responses(serve: Serve) -> None:
    place = await serve()
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    place.handler.on_frame = lambda connection, frame: future
    peer = await place.connect()
    await peer.send(frame_of(b"MR hello"))
    peer.end_input()
    connection = await place.connected()
    await until(lambda: connection._input.requests == 1 and connection._input.is_ended)
    future.set_result([b"at last"])
    assert await peer.receive_to_end() == b"at last"
    await until(lambda: place.handler.lost == [connection])


async def test_a_waiting_request_is_cancelled_when_its_peer_disconnects(serve: Serve) -> None:
    place = await serve()
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    place.handler.on_frame = lambda connection, frame: future
    peer = await place.connect()
    await peer.send(frame_of(b"MR hello"))
    await until(lambda: place.handler.frames == 1)
    peer.reset()
    await until(lambda: len(place.handler.lost) == 1)
    assert future.cancelled()


async def test_a_request_whose_work_is_cancelled_ends_its_connection_alone(serve: Serve) -> None:
    place = await serve()
    reported: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    future: asyncio.Future[Response] = loop.create_future()
    place.handler.on_frame = lambda connection, frame: future
    peer, other = await place.connect(), await place.connect()
    await peer.send(frame_of(b"MR hello"))
    await until(lambda: place.handler.frames == 1)
    future.cancel()
    await until(lambda: len(place.handler.lost) == 1)
    assert place.handler.lost[0].close_reason == "the broker stops"
    place.handler.on_frame = lambda connection, frame: [b"fine"]
    await other.send(frame_of(b"MR hello"))
    assert await other.receive(4) == b"fine"
    assert not reported


async def test_exception_in_a_handler_is_reported_and_ends_only_its_connection(
    serve: Serve,
) -> None:
    place = await serve()
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: reported.append(repr(context["exception"]))
    )

    def fail(connection: Connection, frame: bytes) -> Answer:
        if frame[4:] == b"MR fail now":
            raise KeyError("now")
        if frame[4:] == b"MR fail later":
            future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            future.set_exception(KeyError("later"))
            return future
        return [frame]

    place.handler.on_frame = fail
    good = await place.connect()
    for body in (b"MR fail now", b"MR fail later"):
        bad = await place.connect()
        await bad.send(frame_of(body))
        assert await bad.receive_to_end() == b""
    await good.send(frame_of(b"MR hello"))
    assert await good.receive(12) == frame_of(b"MR hello")
    assert reported == ["KeyError('now')", "KeyError('later')"]


async def test_handler_that_finishes_a_connection_has_its_answer_sent_first(serve: Serve) -> None:
    place = await serve()

    def refuse(connection: Connection, frame: bytes) -> Answer:
        connection.finish("the peer speaks another protocol")
        return [b"this is millrace"]

    place.handler.on_frame = refuse
    peer = await place.connect()
    await peer.send(frame_of(b"GET / HTTP/1.1") * 1000)
    assert await peer.receive_to_end() == b"this is millrace"
    peer.socket.close()
    await until(lambda: len(place.handler.lost) == 1)
    assert place.handler.frames == 1
    assert place.handler.lost[0].close_reason == "the peer speaks another protocol"


async def test_a_connection_counts_requests_and_bytes(serve: Serve) -> None:
    place = await serve()
    peer = await place.connect()
    await peer.send(frame_of(b"MR hello") * 3)
    await peer.receive(36)
    connection = await place.connected()
    assert (connection._input.requests, connection.bytes_in, connection.bytes_out) == (3, 36, 36)
    host, port = peer.socket.getsockname()
    assert connection.peer == f"{host}:{port}"


@pytest.mark.parametrize("family", ["inet6", "unix"])
async def test_other_families_serve_file_slices_too(
    serve: Serve, counted_file: Callable[[bytes], CountedFile], family: str, tmp_path: Path
) -> None:
    place = await serve()
    data = random.Random(2).randbytes(2_000_000)
    file = counted_file(data)
    place.handler.on_frame = lambda connection, frame: [b"head", file.slice(0, len(data)), b"end"]
    loop = asyncio.get_running_loop()
    if family == "unix":
        path = str(tmp_path / "socket")
        listener = await loop.create_unix_server(place.server.connection, path)
        reader, writer = await asyncio.open_unix_connection(path)
    else:
        listener = await loop.create_server(place.server.connection, "::1", 0)
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("::1", port)
    writer.write(frame_of(b"MR fetch"))
    assert await reader.readexactly(4 + len(data) + 3) == b"head" + data + b"end"
    writer.close()
    await writer.wait_closed()
    listener.close()


async def test_tls_peer_gets_the_same_answers(
    serve: Serve, counted_file: Callable[[bytes], CountedFile]
) -> None:
    certificate = Path(__file__).with_name("localhost.pem")
    files = TlsFiles(str(certificate), clock=SystemClock())
    place = await serve(net=OsNet(files), has_tls=True)
    data = random.Random(2).randbytes(3_000_000)
    file = counted_file(data)
    place.handler.on_frame = lambda connection, frame: [
        b"head",
        file.slice(0, len(data)),
        frame,
    ]
    client_side = ssl.create_default_context(cafile=certificate)
    reader, writer = await asyncio.open_connection(
        *place.address, ssl=client_side, server_hostname="localhost"
    )
    frames = [frame_of(b"MR fetch %04d" % number) for number in range(5)]
    writer.write(b"".join(frames))
    for frame in frames:
        assert await reader.readexactly(4) == b"head"
        assert await reader.readexactly(len(data)) == data
        assert await reader.readexactly(len(frame)) == frame
    writer.close()
    await writer.wait_closed()
    await until(lambda: len(place.handler.lost) == 1)


async def test_large_frames_are_taken_only_after_hello(serve: Serve) -> None:
    limits = Limits(frame_bytes_max_before_hello=100, frame_bytes_max=1000)
    place = await serve(limits=limits)

    def greet(connection: Connection, frame: bytes) -> Answer:
        connection.lift_frame_limit()
        return [b"hello"]

    place.handler.on_frame = greet
    ungreeted = await place.connect()
    await ungreeted.send(frame_of(bytes(101)))
    assert await ungreeted.receive_to_end() == b"bad length 101"
    friend = await place.connect()
    await friend.send(frame_of(bytes(100)) + frame_of(bytes(1000)) + frame_of(bytes(1001)))
    assert await friend.receive_to_end() == b"hellohellobad length 1001"
