"""Responses that are sent in parts keep their place, and wait for a slow reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace_server.environment.seams import Response
from millrace_server.limits import Limits
from millrace_server.net.connection import Connection
from millrace_server.net.pending_response import PendingResponse
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.server.net.conftest import Answer, CountedFile, Serve, until


class Stream:
    """One streamed response, driven by the test through a queue of commands."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._end: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.ended = False
        self.hangs_up = False
        """Whether the connection ends with the stream."""
        self.place: PendingResponse | None = None

    async def respond(self) -> Response:
        self.place = self._connection.stream()
        try:
            last = await self._end
            if self.hangs_up:
                self._connection.finish("the stream is over")
            return last
        finally:
            self.ended = True

    def send(self, parts: Response) -> bool:
        assert self.place is not None
        return self._connection.send_part(self.place, parts)

    def drained(self) -> asyncio.Future[None]:
        return self._connection.drained()

    def finish(self, parts: Response) -> None:
        self._end.set_result(parts)


class Tail:
    """A handler of lines: TAIL opens a stream, WAIT parks, anything else echoes."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.parked: list[asyncio.Future[Response]] = []

    def __call__(self, connection: Connection, line: bytes) -> Answer:
        if line == b"TAIL":
            self.streams.append(Stream(connection))
            return self.streams[-1].respond()
        if line == b"WAIT":
            self.parked.append(asyncio.get_running_loop().create_future())
            return self.parked[-1]
        return [line + b"\n"]


async def test_stream_keeps_its_place_between_answers(serve: Serve) -> None:
    place = await serve()
    tail = place.handler.on_line = Tail()
    peer = await place.connect()
    await peer.send(b"one\nWAIT\nTAIL\nlast\n")
    assert await peer.receive(4) == b"one\n"
    await until(lambda: len(tail.streams) == 1)
    assert tail.streams[0].send([b"early\n"])
    tail.parked[0].set_result([b"waited\n"])
    assert await peer.receive(13) == b"waited\nearly\n"
    assert tail.streams[0].send([b"later\n"])
    assert await peer.receive(6) == b"later\n"
    tail.streams[0].finish([b"end\n"])
    assert await peer.receive(9) == b"end\nlast\n"
    await until(lambda: tail.streams[0].ended)


async def test_stream_ends_when_its_peer_leaves(
    serve: Serve, counted_file: Callable[[bytes], CountedFile]
) -> None:
    place = await serve()
    tail = place.handler.on_line = Tail()
    file = counted_file(b"0123456789")
    peer = await place.connect(receive_buffer_bytes=4096)
    await peer.send(b"TAIL\n")
    await until(lambda: len(tail.streams) == 1)
    while tail.streams[0].send([bytes(50_000)]):  # noqa: ASYNC110 - fills the kernel's buffers
        await asyncio.sleep(0)
    tail.streams[0].send([file.slice(0, 10)])
    peer.reset()
    await until(lambda: tail.streams[0].ended)
    await until(lambda: file.references == 1)


async def test_stream_goes_on_after_its_peer_ended_its_input(serve: Serve) -> None:
    place = await serve()
    tail = place.handler.on_line = Tail()
    peer = await place.connect()
    await peer.send(b"TAIL\n")
    peer.end_input()
    connection = await place.connected()
    await until(lambda: connection._input.is_ended)
    tail.streams[0].send([b"still here\n"])
    assert await peer.receive(11) == b"still here\n"
    tail.streams[0].finish([])
    assert await peer.receive_to_end() == b""


async def test_sender_is_asked_to_pause_and_told_when_there_is_room(serve: Serve) -> None:
    place = await serve()
    tail = place.handler.on_line = Tail()
    peer = await place.connect(receive_buffer_bytes=4096)
    await peer.send(b"TAIL\n")
    await until(lambda: len(tail.streams) == 1)
    stream = tail.streams[0]
    connection = await place.connected()
    sent = 0
    while stream.send([bytes(50_000)]):
        sent += 50_000
        await asyncio.sleep(0)
    sent += 50_000
    assert connection.held_bytes < 400_000
    room = stream.drained()
    assert not room.done()
    assert len(await peer.receive(sent)) == sent
    await asyncio.wait_for(room, HANG_TIMEOUT_S)
    assert stream.send([b"more"])
    assert await peer.receive(4) == b"more"


async def test_sender_that_never_pauses_is_cut_off(serve: Serve) -> None:
    limits = Limits(frame_bytes_max=1_000_000, buffered_bytes_max=1_000_000)
    place = await serve(limits=limits)
    tail = place.handler.on_line = Tail()
    peer = await place.connect(receive_buffer_bytes=4096)
    await peer.send(b"TAIL\n")
    await until(lambda: len(tail.streams) == 1)
    for _ in range(11):
        tail.streams[0].send([bytes(100_000)])
    await until(lambda: len(place.handler.lost) == 1)
    assert tail.streams[0].ended
    assert "sent more than the connection may hold" in place.handler.lost[0].close_reason


async def test_drain_ends_streams(serve: Serve) -> None:
    place = await serve()
    tail = place.handler.on_line = Tail()
    peer = await place.connect()
    await peer.send(b"TAIL\n")
    await until(lambda: len(tail.streams) == 1)
    tail.streams[0].send([b"goodbye\n"])
    draining = asyncio.get_running_loop().create_task(place.server.drain(20_000))
    assert await peer.receive_to_end() == b"goodbye\n"
    assert tail.streams[0].ended
    peer.socket.close()
    await draining


async def test_a_stream_that_ends_its_connection_sends_its_last_part(serve: Serve) -> None:
    place = await serve()
    tail = place.handler.on_line = Tail()
    peer = await place.connect()
    await peer.send(b"TAIL\nTAIL\n")
    await until(lambda: len(tail.streams) == 2)
    tail.streams[0].hangs_up = True
    tail.streams[0].send([b"part\n"])
    tail.streams[0].finish([b"last\n"])
    assert await peer.receive_to_end() == b"part\nlast\n"
    await until(lambda: tail.streams[1].ended)
