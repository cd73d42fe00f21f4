"""The cost of one peer is bounded for any input."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

from millrace_server.environment.seams import Response
from millrace_server.limits import Limits
from millrace_server.net.connection import Connection
from tests.server.net.conftest import Answer, Place, Serve, frame_of, until


def greeting(connection: Connection, frame: bytes) -> Answer:
    connection.lift_frame_limit()
    return [frame]


@pytest.mark.parametrize("length", [0, 7, 1001, 2**31 - 1, 2**31, 2**32 - 1])
async def test_frame_length_out_of_bounds_is_refused_then_closed(serve: Serve, length: int) -> None:
    place = await serve(limits=Limits(frame_bytes_max=1000, frame_bytes_max_before_hello=1000))
    peer = await place.connect()
    await peer.send(frame_of(b"MR hello") + length.to_bytes(4, "big") + bytes(5000))
    # The rest of the input is still unread when the refusal is sent; it must not be lost to a
    # reset.
    expected = frame_of(b"MR hello") + b"bad length %d" % length
    assert await peer.receive_to_end() == expected
    peer.socket.close()
    await until(lambda: len(place.handler.lost) == 1)
    assert place.handler.frames == 1


async def test_line_that_is_too_long_is_refused_then_closed(serve: Serve) -> None:
    place = await serve(limits=Limits(line_bytes_max=100))
    peer = await place.connect()
    await peer.send(b"a" * 100 + b"\n" + b"b" * 101)
    assert await peer.receive_to_end() == b"a" * 100 + b"\n" + b"line over 100"


async def test_refused_peer_that_keeps_sending_is_cut_off(serve: Serve) -> None:
    place = await serve()
    peer = await place.connect()
    connection = await place.connected()
    await peer.send(bytes(8))
    assert await peer.receive_to_end() == b"bad length 0"
    await peer.send(bytes(100_000))
    place.pass_time(place.server.limits.linger_ms + 100)
    await until(lambda: place.handler.lost == [connection])


async def test_silent_connection_is_closed_at_the_first_frame_timeout(serve: Serve) -> None:
    place = await serve()
    peer = await place.connect()
    connection = await place.connected()
    place.pass_time(4_990)
    assert connection.close_reason == ""
    place.pass_time(10)
    assert await peer.receive_to_end() == b""
    await until(lambda: place.handler.lost == [connection])
    assert "no whole request within 5000 ms" in connection.close_reason


async def test_first_request_sent_one_byte_at_a_time_does_not_win_time(serve: Serve) -> None:
    place = await serve()
    peer = await place.connect()
    connection = await place.connected()
    for byte in frame_of(bytes(996))[:10]:
        await peer.send(bytes([byte]))
        seen = connection.bytes_in
        await until(lambda seen=seen: connection.bytes_in > seen or connection.closed)  # type: ignore[misc]
        place.pass_time(500)
    assert connection.closed


async def test_later_request_must_be_finished_in_time_too(serve: Serve) -> None:
    place = await serve(limits=Limits(frame_timeout_ms=20_000))
    peer = await place.connect()
    await peer.send(frame_of(b"MR hello"))
    await peer.receive(12)
    connection = await place.connected()
    place.pass_time(100_000)
    assert connection.close_reason == ""
    for byte in frame_of(bytes(996))[:20]:
        await peer.send(bytes([byte]))
        seen = connection.bytes_in
        await until(lambda seen=seen: connection.bytes_in > seen)  # type: ignore[misc]
        place.pass_time(1_000)
    assert connection.closed
    assert "not finished within 20000 ms" in connection.close_reason


async def test_idle_connection_is_closed_but_one_that_waits_for_us_is_not(serve: Serve) -> None:
    place = await serve()
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    place.handler.on_frame = lambda connection, frame: (
        future if frame[4:] == b"MR long poll" else [frame]
    )
    idle = await place.connect()
    await idle.send(frame_of(b"MR hello"))
    await idle.receive(12)
    waiting = await place.connect()
    await waiting.send(frame_of(b"MR long poll"))
    await until(lambda: place.handler.frames == 2)
    first, second = place.server.connections
    place.pass_time(600_000)
    assert await idle.receive_to_end() == b""
    assert "idle for 600000 ms" in first.close_reason
    assert not second.closed
    future.set_result([b"at last"])
    assert await waiting.receive(7) == b"at last"


async def test_peer_that_never_reads_is_not_read_either_and_then_closed(serve: Serve) -> None:
    limits = Limits(inflight_requests_max=8)
    place = await serve(limits=limits)
    place.handler.on_frame = lambda connection, frame: [bytes(100_000)]
    peer = await place.connect(receive_buffer_bytes=4096)
    connection = await place.connected()
    requests = memoryview(frame_of(b"MR metadata") * 1_500_000)
    sent = 0
    for _ in range(200):
        sent += peer.send_what_fits(requests[sent:])
        await asyncio.sleep(0)
    assert connection._output.waits_for_peer
    handled = place.handler.frames
    # What the kernel takes (some megabytes) plus what may be in flight.
    assert handled < 200
    assert connection.held_bytes <= 8 * 100_000
    assert sent < len(requests)
    for _ in range(50):
        sent += peer.send_what_fits(requests[sent:])
        await asyncio.sleep(0)
    assert place.handler.frames == handled
    place.pass_time(29_000)
    assert not connection.closed
    place.pass_time(2_000)
    await until(lambda: place.handler.lost == [connection])
    assert "read nothing for 30000 ms" in connection.close_reason


async def test_slow_but_steady_reader_is_not_closed(serve: Serve) -> None:
    place = await serve()
    place.handler.on_frame = lambda connection, frame: [bytes(20_000_000)]
    peer = await place.connect(receive_buffer_bytes=65536)
    connection = await place.connected()
    await peer.send(frame_of(b"MR fetch"))
    await until(lambda: connection._output.waits_for_peer)
    left = 20_000_000
    while left:
        before = connection.bytes_out
        left -= len(await peer.receive(min(left, 2_000_000)))

        def has_moved(before: int = before) -> bool:
            return connection.bytes_out > before or not connection._output.unsent

        await until(has_moved)
        place.pass_time(25_000)
        assert not connection.closed


async def test_requests_beyond_the_inflight_limit_wait_until_answers_left(serve: Serve) -> None:
    place = await serve(limits=Limits(inflight_requests_max=5))
    futures: list[asyncio.Future[Response]] = []

    def answer(connection: Connection, frame: bytes) -> Answer:
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    place.handler.on_frame = answer
    peer = await place.connect()
    await peer.send(b"".join(frame_of(b"MR %05d" % number) for number in range(12)))
    for done in range(12):
        await until(lambda done=done: len(futures) == min(12, done + 5))  # type: ignore[misc]
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(futures) == min(12, done + 5)
        futures[done].set_result([b"%05d" % done])
        assert await peer.receive(5) == b"%05d" % done


async def test_flood_of_small_requests_lets_other_connections_in_between(serve: Serve) -> None:
    place = await serve()
    order: list[str] = []

    def answer(connection: Connection, frame: bytes) -> Answer:
        order.append(frame[4:].decode())
        return None

    place.handler.on_frame = answer
    flood = await place.connect()
    other = await place.connect()
    await flood.send(frame_of(b"MR flood") * 10_000)
    await other.send(frame_of(b"MR other"))
    await until(lambda: len(order) == 10_001)
    # One read holds them all, yet the other connection did not wait for it.
    assert order.index("MR other") < 5_000


async def hold(place: Place, size: int) -> tuple[socket.socket, list[asyncio.Future[Response]]]:
    """A connection that holds a frame of `size` bytes in memory until its future is set."""
    futures: list[asyncio.Future[Response]] = []

    def keep(connection: Connection, frame: bytes) -> Answer:
        if frame[4:6] == b"MR":
            return greeting(connection, frame)
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    place.handler.on_frame = keep
    peer = await place.connect()
    await peer.send(frame_of(b"MR hello"))
    await peer.receive(12)
    await peer.send(frame_of(bytes(size)))
    await until(lambda: len(futures) == 1)
    return peer.socket, futures


async def test_large_frames_share_the_memory_budget_in_the_order_they_came(serve: Serve) -> None:
    million = 1_000_000
    limits = Limits(
        frame_bytes_max=million, buffered_bytes_max=million + 4, request_memory_bytes=million + 4
    )
    place = await serve(limits=limits)
    _, futures = await hold(place, million)
    assert place.server.memory.exhausted
    waiting = []
    for number in range(3):
        peer = await place.connect()
        await peer.send(frame_of(b"MR hello"))
        await peer.receive(12)
        sent = peer.send_what_fits(frame_of(bytes([number]) * million))
        waiting.append((peer, sent))
        await until(lambda number=number: place.server.memory.waiting_count == number + 1)  # type: ignore[misc]
    # Small requests are not held up by large ones.
    peer = await place.connect()
    await peer.send(frame_of(b"MR small"))
    assert await peer.receive(12) == frame_of(b"MR small")
    for number, (peer, sent) in enumerate(waiting):
        futures[-1].set_result([b"done"])
        await peer.send(frame_of(bytes([number]) * million)[sent:])
        await until(lambda number=number: len(futures) == number + 2)  # type: ignore[misc]
        # One that has begun may pass the budget by a frame.
        assert place.server.memory.used <= 2 * (million + 4)
    futures[-1].set_result([b"done"])
    assert await waiting[-1][0].receive(4) == b"done"
    await until(lambda: place.server.memory.used == 0)


async def test_peer_that_leaves_gives_its_place_in_the_memory_queue_up(serve: Serve) -> None:
    million = 1_000_000
    limits = Limits(
        frame_bytes_max=million, buffered_bytes_max=million + 4, request_memory_bytes=million + 4
    )
    place = await serve(limits=limits)
    _, futures = await hold(place, million)
    gone = await place.connect()
    await gone.send(frame_of(b"MR hello"))
    await gone.receive(12)
    gone.send_what_fits(frame_of(bytes(million)))
    await until(lambda: place.server.memory.waiting_count == 1)
    list(place.server.connections)[1].abort("the test says so")
    await until(lambda: place.server.memory.waiting_count == 0)
    futures[0].set_result([b"done"])
    await until(lambda: place.server.memory.used == 0)


async def test_second_large_frame_waits_for_the_answer_to_the_first(serve: Serve) -> None:
    million = 1_000_000
    place = await serve(limits=Limits(frame_bytes_max=million, buffered_bytes_max=3 * million // 2))
    sock, futures = await hold(place, million)
    data = frame_of(random.Random(1).randbytes(million))
    loop = asyncio.get_running_loop()
    sending = loop.create_task(loop.sock_sendall(sock, data))
    connection = await place.connected()
    await until(lambda: connection._input.account.held_back)
    assert len(futures) == 1
    assert connection.held_bytes == million + 4
    futures[0].set_result([b"done"])
    await until(lambda: len(futures) == 2)
    assert connection.held_bytes == million + 4
    futures[1].set_result([b"done"])
    await sending
    assert await loop.sock_recv(sock, 100) == b"done"


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="frame_bytes_max is 2000; it must be at most"):
        Limits(frame_bytes_max=2000, frame_bytes_max_before_hello=1000, buffered_bytes_max=1500)
    with pytest.raises(ValueError, match="inflight_requests_max is 0"):
        Limits(inflight_requests_max=0)
    with pytest.raises(ValueError, match="line_bytes_max"):
        Limits(line_bytes_max=1 << 20)
