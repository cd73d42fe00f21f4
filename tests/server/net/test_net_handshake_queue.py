"""A pending connection costs a descriptor alone until its first frame is complete."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from millrace_server.limits import Limits
from millrace_server.net import handshake_queue
from millrace_server.net.listener import OsNet
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.server.net.conftest import Serve, frame_of, open_descriptors, until

HELLO = frame_of(b"MR hello")


async def settle() -> None:
    """As many passes of the loop as anything here takes."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_a_silent_socket_is_no_connection_until_it_sends_its_first_frame(
    serve: Serve,
) -> None:
    place = await serve(net=OsNet())
    peer = await place.connect()
    await settle()
    assert not place.server.connections
    await peer.send(HELLO)
    assert await peer.receive(len(HELLO)) == HELLO
    assert len(place.server.connections) == 1


@pytest.mark.parametrize("cut", [1, 3, 4, 5, len(HELLO) - 1])
async def test_a_first_frame_in_two_parts_comes_in_when_it_is_whole(serve: Serve, cut: int) -> None:
    place = await serve(net=OsNet())
    peer = await place.connect()
    await peer.send(HELLO[:cut])
    await settle()
    assert not place.server.connections
    await peer.send(HELLO[cut:])
    assert await peer.receive(len(HELLO)) == HELLO


async def test_a_long_first_frame_comes_in_before_it_is_whole(serve: Serve) -> None:
    place = await serve(net=OsNet())
    frame = frame_of(b"MR" + bytes(60_000))
    peer = await place.connect()
    await peer.send(frame[: handshake_queue.FIRST_BYTES])
    await place.connected()
    await peer.send(frame[handshake_queue.FIRST_BYTES :])
    assert await peer.receive(len(frame)) == frame


@pytest.mark.parametrize("length", [-1, 0, 101, 2**31 - 1])
async def test_a_length_that_must_be_refused_is_not_waited_for(serve: Serve, length: int) -> None:
    place = await serve(net=OsNet(), limits=Limits(frame_bytes_max_before_hello=100))
    peer = await place.connect()
    await peer.send(struct.pack(">i", length))
    assert await peer.receive_to_end() == b"bad length %d" % (length % 2**32)


async def test_the_first_letter_of_a_line_comes_in(serve: Serve) -> None:
    place = await serve(net=OsNet())
    peer = await place.connect()
    await peer.send(b"H")
    await place.connected()
    await peer.send(b"ELP\n")
    assert await peer.receive(4) == b"HELP"


@pytest.mark.parametrize("sent", [b"", b"\0", b"\0\0\0\x40", HELLO[:-1]])
async def test_a_peer_that_closes_before_a_whole_frame_leaves_nothing(
    serve: Serve, sent: bytes
) -> None:
    place = await serve(net=OsNet())
    before = open_descriptors()
    for how in ("end_input", "reset"):
        peer = await place.connect()
        await peer.send(sent)
        getattr(peer, how)()
        if how == "end_input":
            assert await peer.receive_to_end() == b""
            peer.socket.close()
    await until(lambda: open_descriptors() == before)
    assert not place.handler.connections


async def test_a_whole_frame_before_the_end_is_answered(serve: Serve) -> None:
    place = await serve(net=OsNet())
    peer = await place.connect()
    await peer.send(HELLO)
    peer.end_input()
    assert await peer.receive_to_end() == HELLO


@pytest.mark.parametrize("sent", [b"", HELLO[:-1]])
async def test_a_peer_that_takes_too_long_is_evicted(serve: Serve, sent: bytes) -> None:
    place = await serve(net=OsNet(), limits=Limits(first_frame_timeout_ms=20))
    peers = [await place.connect() for _ in range(30)]
    for peer in peers:
        await peer.send(sent)
    for peer in peers:
        async with asyncio.timeout(HANG_TIMEOUT_S):
            assert await peer.receive_to_end() == b""


async def test_no_connection_is_evicted_before_its_time_is_over() -> None:
    """Whenever he came: one in the tick that is about to end, one right behind its end."""
    loop = asyncio.get_running_loop()
    waiting = handshake_queue.HandshakeQueue(
        loop, lambda _: None, timeout_ms=600_000, frame_bytes_max=100
    )
    assert waiting._tick_s * (handshake_queue.TICKS_MAX - 1) == 600
    pairs = []
    left = []
    for tick in range(handshake_queue.TICKS_MAX + 2):
        if tick < 2:
            pairs.append(socket.socketpair())
            pairs[-1][0].setblocking(False)
            waiting.add(pairs[-1][0])
        waiting._on_tick()
        await asyncio.sleep(0)
        left.append(len(waiting))
    # The first came before tick 1, which counts as no time at all.
    assert left == [1, 2, 1, 0, 0]
    waiting.close()
    for pair in pairs:
        for end in pair:
            end.close()


async def test_the_longest_silent_makes_room(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_queue, "PENDING_MAX", 3)
    place = await serve(net=OsNet())
    peers = [await place.connect() for _ in range(5)]
    for peer in peers[:2]:
        assert await peer.receive_to_end() == b""
    for peer in peers[2:]:
        await peer.send(HELLO)
        assert await peer.receive(len(HELLO)) == HELLO


async def test_a_crowd_that_hangs_up_together_is_let_go_a_few_in_each_pass(serve: Serve) -> None:
    place = await serve(net=OsNet())
    before = open_descriptors()
    crowd = [await place.connect() for _ in range(200)]
    await until(lambda: open_descriptors() == before + 2 * len(crowd))
    for peer in crowd:
        peer.reset()
    passes = 0
    while open_descriptors() > before:
        passes += 1
        await asyncio.sleep(0)
    assert passes >= len(crowd) // handshake_queue.EVENTS_PER_PASS


async def test_a_server_that_stops_closes_pending_connections(serve: Serve) -> None:
    place = await serve(net=OsNet())
    peer = await place.connect()
    await settle()
    await place.server.drain(0)
    assert await peer.receive_to_end() == b""
