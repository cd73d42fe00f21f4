"""A transport without a socket serves the same answers, within its own flow control."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from millrace_server.net.connection import Connection
from tests.server.net.conftest import CountedFile, Serve, frame_of, until


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; like a real one it pauses its protocol as soon as it is full."""

    def __init__(self, protocol: Connection) -> None:
        super().__init__()
        self.protocol = protocol
        self.written = bytearray()
        self.write_sizes: list[int] = []
        self.reading = True
        self.ended = False
        self.closing = False
        self.high = 64 << 10

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 9) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high = high

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.full()
        self.write_sizes.append(len(data))
        self.written += data
        if self.full():
            self.protocol.pause_writing()

    def full(self) -> bool:
        return len(self.written) > self.high

    def read(self) -> bytes:
        """What the other side reads, which makes room."""
        data = bytes(self.written)
        self.written.clear()
        self.protocol.resume_writing()
        return data

    def feed(self, data: bytes) -> None:
        assert self.reading
        buffer = self.protocol.get_buffer(-1)
        buffer[: len(data)] = data
        self.protocol.buffer_updated(len(data))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self._lose(ConnectionAbortedError("aborted"))

    def _lose(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)


async def test_transport_without_a_socket_gets_slices_in_pieces(
    serve: Serve, counted_file: Callable[[bytes], CountedFile]
) -> None:
    place = await serve()
    data = random.Random(6).randbytes(1_000_000)
    file = counted_file(data)
    place.handler.on_frame = lambda connection, frame: [b"head", file.slice(0, len(data)), b"end"]
    connection = place.server.connection()
    transport = MemoryTransport(connection)
    connection.connection_made(transport)
    assert connection.peer == "10.0.0.1:9"
    transport.feed(frame_of(b"MR fetch"))
    received = b""
    while len(received) < len(data) + 7:
        await until(lambda: len(transport.written) > 0)
        received += transport.read()
    assert received == b"head" + data + b"end"
    assert max(transport.write_sizes) <= 64 << 10
    connection.finish("enough")
    await until(lambda: transport.ended)
    assert not connection.eof_received()
    transport.close()
    await until(lambda: place.handler.lost == [connection])


async def test_transport_that_is_full_stops_being_read_at_the_inflight_limit(
    serve: Serve,
) -> None:
    place = await serve()
    connection = place.server.connection()
    transport = MemoryTransport(connection)
    connection.connection_made(transport)
    for _ in range(200):
        if not transport.reading:
            break
        transport.feed(frame_of(b"MR hello"))
    assert not transport.reading
    assert place.handler.frames <= place.server.limits.inflight_requests_max + 1
    received = b""
    while len(received) < 12 * place.handler.frames:
        await until(lambda: len(transport.written) > 0)
        received += transport.read()
    assert received == frame_of(b"MR hello") * place.handler.frames
    await until(lambda: transport.reading)
    transport.abort()
    await until(lambda: place.handler.lost == [connection])


async def test_connection_that_arrives_while_draining_is_ended_too(serve: Serve) -> None:
    place = await serve()
    busy = MemoryTransport(place.server.connection())
    busy.protocol.connection_made(busy)
    draining = asyncio.get_running_loop().create_task(place.server.drain(20_000))
    await until(lambda: busy.ended)
    late = MemoryTransport(place.server.connection())
    late.protocol.connection_made(late)
    await until(lambda: late.ended)
    busy.close()
    late.close()
    await draining


async def test_connection_with_unsent_answers_is_not_read_while_memory_is_exhausted(
    serve: Serve,
) -> None:
    place = await serve()
    budget = place.server.memory
    place.handler.on_frame = lambda connection, frame: [bytes(100_000)] * 3
    transports = [MemoryTransport(place.server.connection()) for _ in range(2)]
    for transport in transports:
        transport.protocol.connection_made(transport)
    budget.charge(budget.size)
    transports[0].feed(frame_of(b"MR fetch"))
    # What it holds beyond the transport's own buffer is charged, and stops only itself.
    assert not transports[0].reading
    assert transports[1].reading
    await until(lambda: len(transports[0].written) > 0)
    while transports[0].protocol.held_bytes:
        transports[0].read()
        await asyncio.sleep(0)
    await until(lambda: transports[0].reading)
    budget.charge(-budget.size)
    for transport in transports:
        transport.close()
    await until(lambda: len(place.handler.lost) == 2)
