"""Many concurrent peers that connect, send, misbehave and leave, from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from millrace_server.environment.seams import Response
from millrace_server.limits import Limits
from millrace_server.net.connection import Connection
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.server.net.conftest import Answer, CountedFile, Place, Serve, frame_of, until

SLICE_BYTES = 3_000_000


async def visit(place: Place, choices: random.Random, seen: dict[str, int]) -> None:
    """One peer's stay: some requests, then one of many ways to leave."""
    peer = await place.connect(receive_buffer_bytes=choices.choice([4096, 65536, None]))
    try:
        for _ in range(choices.randrange(4)):
            kind = choices.choice([b"ping", b"late", b"file"])
            await peer.send(frame_of(kind + bytes(choices.randrange(4, 20_000))))
            if choices.random() < 0.6:
                assert len(await peer.receive(SLICE_BYTES if kind == b"file" else 4)) >= 4
        way = choices.choice(["reset", "close", "half", "partial", "garbage", "text"])
        seen[way] = seen.get(way, 0) + 1
        if way == "reset":
            peer.reset()
        elif way == "half":
            peer.end_input()
            await peer.receive_to_end()
        elif way == "partial":
            await peer.send(frame_of(bytes(60_000))[: choices.randrange(1, 60_000)])
        elif way == "garbage":
            await peer.send(b"\x16\x03\x01" + choices.randbytes(1_000))
            await peer.receive_to_end()
        elif way == "text":
            await peer.send(b"HELLO\n")
    finally:
        peer.socket.close()


async def test_storm_leaves_nothing_behind(
    serve: Serve, counted_file: Callable[[bytes], CountedFile]
) -> None:
    place = await serve(limits=Limits(inflight_requests_max=8))
    file = counted_file(bytes(SLICE_BYTES))
    loop = asyncio.get_running_loop()
    choices = random.Random(11)

    def complete(future: asyncio.Future[Response]) -> None:
        if not future.done():
            future.set_result([b"late", file.slice(5, 0)])

    def answer(connection: Connection, frame: bytes) -> Answer:
        if frame[4:8] == b"file":
            return [file.slice(0, SLICE_BYTES)]
        if frame[4:8] == b"late":
            future: asyncio.Future[Response] = loop.create_future()
            loop.call_later(choices.random() / 100, complete, future)
            return future
        return [frame[4:8]]

    place.handler.on_frame = answer
    seen: dict[str, int] = {}
    async with asyncio.timeout(HANG_TIMEOUT_S):
        for _ in range(10):
            async with asyncio.TaskGroup() as peers:
                for _ in range(20):
                    peers.create_task(visit(place, random.Random(choices.random()), seen))
    assert sorted(seen) == ["close", "garbage", "half", "partial", "reset", "text"]
    await until(lambda: not place.server.connections)
    assert len(place.handler.lost) == 200
    await until(lambda: file.references == 1)
