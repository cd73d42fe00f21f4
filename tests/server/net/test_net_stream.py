"""Answers that are sent piece by piece keep their place, and heed a slow reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace_server.environment.seams import Reply
from millrace_server.limits import Limits
from millrace_server.net.connection import Connection
from millrace_server.net.stream import Stream
from tests.server.net.conftest import Answer, CountedFile, Serve, until


class Tail:
    """A handler of lines: TAIL opens a stream, WAIT parks, anything else echoes."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.parked: list[asyncio.Future[Reply]] = []

    def __call__(self, connection: Connection, line: bytes) -> Answer:
        if line == b"TAIL":
            self.streams.append(connection.stream())
            return self.streams[-1]
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
    assert tail.streams[0].ended


async def test_stream_ends_when_its_peer_leaves(
    serve: Serve, counted_file: Callable[[bytes], CountedFile]
) -> None:
    place = await serve()
    tail = place.handler.on_line = Tail()
    file = counted_file(b"0123456789")
    peer = await place.connect()
    await peer.send(b"TAIL\n")
    await until(lambda: len(tail.streams) == 1)
    peer.reset()
    await until(lambda: tail.streams[0].ended)
    assert not tail.streams[0].send([file.slice(0, 10)])
    tail.streams[0].finish([file.slice(0, 10)])
    await asyncio.wait_for(tail.streams[0].room(), 5)
    assert file.references == 1


async def test_stream_goes_on_after_its_peer_ended_its_input(serve: Serve) -> None:
    place = await serve()
    tail = place.handler.on_line = Tail()
    peer = await place.connect()
    await peer.send(b"TAIL\n")
    peer.end_input()
    connection = await place.connected()
    await until(lambda: connection._input_ended)
    tail.streams[0].send([b"still here\n"])
    assert await peer.receive(11) == b"still here\n"
    tail.streams[0].finish()
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
    room = stream.room()
    assert not room.done()
    assert len(await peer.receive(sent)) == sent
    await asyncio.wait_for(room, 60)
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
