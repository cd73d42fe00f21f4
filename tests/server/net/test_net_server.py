"""Listening, refusing, draining; and the cost of a thousand idle connections."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc

import pytest

from millrace_server.environment.seams import Response
from millrace_server.limits import Limits
from millrace_server.listeners import ListenerConfig
from millrace_server.net.server import ListenError
from tests.server.net.conftest import Serve, frame_of, open_descriptors, until


async def test_port_in_use_is_reported_in_a_sentence(serve: Serve) -> None:
    place = await serve()
    other = await serve()
    await other.server.drain(0)
    address, port = place.address
    with pytest.raises(ListenError, match=f"{address} port {port}: another process listens there"):
        await other.server.start((), [ListenerConfig("plain", (address, port))])


async def test_address_of_another_machine_is_reported_in_a_sentence(serve: Serve) -> None:
    place = await serve()
    await place.server.drain(0)
    with pytest.raises(ListenError, match="this machine does not have that address"):
        await place.server.start((), [ListenerConfig("plain", ("192.0.2.1", 0))])


async def test_connection_over_the_limit_is_told_so(serve: Serve) -> None:
    place = await serve(limits=Limits(connections_max=2))
    kept = [await place.connect() for _ in range(2)]
    for peer in kept:
        await peer.send(frame_of(b"MR hello"))
        assert await peer.receive(12) == frame_of(b"MR hello")
    refused = await place.connect()
    await refused.send(frame_of(b"MR hello"))
    refusal = await refused.receive_to_end()
    assert refusal == b"The broker has 2 connections, its limit; try again later"
    assert place.server.connections_refused == 1
    assert place.handler.frames == 2
    kept[0].socket.close()
    await until(lambda: len(place.server.connections) == 1)
    again = await place.connect()
    await again.send(frame_of(b"MR hello"))
    assert await again.receive(12) == frame_of(b"MR hello")


async def test_crowd_over_the_limit_is_dropped_unheard(serve: Serve) -> None:
    place = await serve(limits=Limits(connections_max=1, connections_refused_max=3))
    crowd = [await place.connect() for _ in range(10)]
    await until(lambda: place.server.connections_refused == 9)
    for peer in crowd[1:]:
        with contextlib.suppress(OSError):
            await peer.send(b"HELLO\n")
    answers = []
    for peer in crowd[1:]:
        try:
            answers.append(await peer.receive_to_end())
        except ConnectionResetError:
            answers.append(b"")
    assert answers.count(b"The broker has 1 connections, its limit; try again later") == 3
    assert answers.count(b"") == 6


async def test_drain_finishes_requests_in_progress_and_takes_no_new_ones(serve: Serve) -> None:
    place = await serve()
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    place.handler.on_frame = lambda connection, frame: future
    busy = await place.connect()
    await busy.send(frame_of(b"MR produce"))
    await until(lambda: place.handler.frames == 1)
    idle = await place.connect()
    await until(lambda: len(place.server.connections) == 2)
    draining = asyncio.get_running_loop().create_task(place.server.drain(20_000))
    assert await idle.receive_to_end() == b""
    idle.socket.close()
    with pytest.raises(ConnectionRefusedError):
        await place.connect()
    await busy.send(frame_of(b"MR another"))
    future.set_result([b"acknowledged"])
    assert await busy.receive_to_end() == b"acknowledged"
    busy.socket.close()
    await draining
    assert place.handler.frames == 1
    assert len(place.handler.lost) == 2


async def test_drain_aborts_connections_at_its_timeout(serve: Serve) -> None:
    place = await serve()
    stuck: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    place.handler.on_frame = lambda connection, frame: stuck
    peer = await place.connect()
    await peer.send(frame_of(b"MR produce"))
    await until(lambda: place.handler.frames == 1)
    await place.server.drain(1)
    assert await peer.receive_to_end() == b""
    assert not place.server.connections
    assert place.handler.lost[0].close_reason == "the broker is stopping"


async def test_time_limits_are_watched_without_being_asked(serve: Serve) -> None:
    place = await serve()
    peer = await place.connect()
    connection = await place.connected()
    place.clock.now_ms += 5_000
    assert await peer.receive_to_end() == b""
    await until(lambda: place.handler.lost == [connection])


async def test_thousand_idle_connections_are_cheap(serve: Serve) -> None:
    place = await serve()
    tasks = len(asyncio.all_tasks())
    for _ in range(10):
        peer = await place.connect()
        await peer.send(frame_of(b"MR hello"))
        await peer.receive(12)
    before = open_descriptors()
    tracemalloc.start()
    for _ in range(1_000):
        peer = await place.connect()
        await peer.send(frame_of(b"MR hello"))
        await peer.receive(12)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(place.server.connections) == 1_010
    assert open_descriptors() == before + 2_000
    assert len(asyncio.all_tasks()) == tasks
    # Both ends are in this process.
    assert used / 1_000 < 12_000
