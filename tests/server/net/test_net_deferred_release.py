"""The output of a lost connection is released in chunks, between the requests of others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from millrace_server.environment.seams import Response
from millrace_server.loop.fair_scheduler import TURN_NS, FairScheduler
from millrace_server.net import deferred_release
from millrace_server.net.connection import Connection
from millrace_server.net.deferred_release import CHUNK_PARTS, CHUNKS_MAX, DeferredRelease
from millrace_server.net.response_queue import MOVED_PARTS
from tests.server.net.conftest import Answer, ChunkClock, CountedFile, Serve, frame_of, until


def _no_callback() -> None: ...


def _one_chunk_in_a_pass() -> FairScheduler:
    return FairScheduler(asyncio.get_running_loop(), ChunkClock(TURN_NS))


def _answer(file: CountedFile, slices: int) -> Response:
    return [part for number in range(slices) for part in (b"head", file.slice(number, 1))]


async def test_few_slices_are_released_at_once_and_many_a_few_in_each_turn(
    counted_file: Callable[[bytes], CountedFile],
) -> None:
    left = DeferredRelease(_one_chunk_in_a_pass())
    file = counted_file(bytes(100))
    left.take(deque(_answer(file, 20)), _no_callback)
    assert file.references == 1
    slices = CHUNKS_MAX * CHUNK_PARTS // 2
    released: list[int] = []
    left.take(deque(_answer(file, slices)), lambda: released.append(file.references))
    left.take(deque(), lambda: released.append(0))
    assert released == [0]
    before = file.references
    assert before == 1 + slices - CHUNK_PARTS // 2
    while file.references > 1:
        await asyncio.sleep(0)
        assert before - file.references <= CHUNK_PARTS // 2
        before = file.references
    assert released == [0, 1]


async def test_the_chunks_grow_with_the_backlog(
    counted_file: Callable[[bytes], CountedFile],
) -> None:
    left = DeferredRelease(_one_chunk_in_a_pass())
    file = counted_file(bytes(100))
    parts = 10 * CHUNKS_MAX * CHUNK_PARTS
    left.take(deque(_answer(file, parts // 2)), _no_callback)
    assert 1 + parts // 2 - file.references == 5 * CHUNK_PARTS
    for _ in range(6 * CHUNKS_MAX):
        await asyncio.sleep(0)
    assert file.references == 1


async def test_the_backlog_is_bounded_and_released_when_the_server_stops(
    counted_file: Callable[[bytes], CountedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts_max = 10 * CHUNK_PARTS
    monkeypatch.setattr(deferred_release, "PARTS_MAX", parts_max)
    left = DeferredRelease(_one_chunk_in_a_pass())
    file = counted_file(bytes(100))
    # The first alone is more than may wait.
    left.take(deque(_answer(file, parts_max)), _no_callback)
    assert file.references <= 1 + parts_max // 2
    for _ in range(20):
        left.take(deque(_answer(file, CHUNK_PARTS)), _no_callback)
        assert file.references <= 1 + parts_max // 2
    assert file.references == 1 + parts_max // 2
    left.release_all()
    assert file.references == 1
    # The turn that was asked for finds nothing.
    for _ in range(10):
        await asyncio.sleep(0)
    left.take(deque(_answer(file, 1)), _no_callback)
    assert file.references == 1


async def test_connection_that_is_lost_with_answers_of_many_parts_keeps_no_slice(
    serve: Serve, counted_file: Callable[[bytes], CountedFile]
) -> None:
    place = await serve()
    file = counted_file(bytes(100))
    first: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    answers: Iterator[Answer] = iter([first, _answer(file, 3_000), _answer(file, 3_000)])
    place.handler.on_frame = lambda connection, frame: next(answers)
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch") * 3)
    await until(lambda: place.handler.frames == 3)
    assert file.references == 6_001
    held = place.server.memory.used
    assert held > 6_000 * len(b"head") - 1
    peer.reset()
    await until(lambda: len(place.handler.lost) == 1)
    # What is held counts until it is let go of.
    assert file.references > 1
    assert place.server.memory.used == held
    await until(lambda: file.references == 1)
    assert place.server.memory.used == 0
    assert first.cancelled()
    assert not file.released_too_often


async def test_answers_that_waited_for_one_go_out_in_their_order_and_not_all_at_once(
    serve: Serve,
) -> None:
    place = await serve()
    parts = MOVED_PARTS
    first: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    taken = 0

    def answer(connection: Connection, frame: bytes) -> Response | asyncio.Future[Response]:
        nonlocal taken
        taken += 1
        return first if taken == 1 else [b"%d" % (taken % 10)] * parts

    place.handler.on_frame = answer
    peer = await place.connect()
    await peer.send(frame_of(b"MR fetch") * 6)
    await until(lambda: taken == 6)
    (connection,) = place.server.connections
    left: list[int] = []
    first.set_result([b"1"])
    await asyncio.sleep(0)
    while len(connection._responses.pending):
        left.append(len(connection._responses.pending))
        await asyncio.sleep(0)
    assert set(left) == {1, 2, 3, 4, 5}
    expected = b"1" + b"".join(b"%d" % number * parts for number in range(2, 7))
    assert await peer.receive(len(expected)) == expected
