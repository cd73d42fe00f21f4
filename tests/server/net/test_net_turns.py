"""What takes long is done between the requests of those who ask for little."""

from __future__ import annotations

import asyncio
import gc

import pytest

from millrace_server.environment.seams import Reply
from millrace_server.limits import Limits
from millrace_server.loop.fair_scheduler import PIECES_APART, FairScheduler, Pieces, done
from millrace_server.net.connection import CROWDED_REQUESTS, TURN_REQUESTS, Connection
from tests.server.net.conftest import Answer, Serve, frame_of, until

PIECES = 1_000


async def test_small_requests_are_answered_between_the_pieces_of_a_large_one(serve: Serve) -> None:
    place = await serve()
    order: list[str] = []

    def pieces() -> Pieces:
        for _ in range(PIECES):
            yield None
        order.append("large")
        return [b"large"]

    def answer(connection: Connection, frame: bytes) -> Answer:
        if frame[4:] == b"MR large":
            return pieces()
        order.append("small")
        return [b"small"]

    place.handler.on_frame = answer
    busy, other = await place.connect(), await place.connect()
    await busy.send(frame_of(b"MR large"))
    await until(lambda: place.handler.frames == 1)
    await other.send(frame_of(b"MR small"))
    assert await other.receive(5) == b"small"
    assert await busy.receive(5) == b"large"
    assert order == ["small", "large"]


@pytest.mark.parametrize("busy", [1, 2, 20])
async def test_steps_of_others_go_between_the_pieces(busy: int) -> None:
    turns = FairScheduler(asyncio.get_running_loop())
    pieces = 0

    def piece() -> None:
        nonlocal pieces
        pieces += 1
        if pieces < PIECES:
            turns.enter(piece)

    for _ in range(busy):
        turns.enter(piece)
    for _ in range(100):
        turns.keep_apart()
        await asyncio.sleep(0)
    assert pieces in range(11, 14)
    # Once all ask for much, for a while, none waits for others.
    for _ in range(10 * PIECES_APART):
        await asyncio.sleep(0)
    before = pieces
    for _ in range(100):
        await asyncio.sleep(0)
    assert pieces - before in range(99, 102)
    await until(lambda: pieces >= PIECES)


async def test_a_task_that_is_cancelled_before_its_turn_holds_up_nobody() -> None:
    turns = FairScheduler(asyncio.get_running_loop())
    order: list[int] = []

    async def work(number: int) -> None:
        await turns.turn()
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 2, 4]


async def test_work_in_pieces_may_wait_for_something_else(serve: Serve) -> None:
    """Later requests of its connection wait with it, and those of others do not."""
    place = await serve()
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    steps = 0

    def pieces() -> Pieces:
        nonlocal steps
        yield None
        yield done
        while steps < 5:
            steps += 1
            yield None
        return [done.result().encode()]

    def answer(connection: Connection, frame: bytes) -> Answer:
        return pieces() if frame[4:] == b"MR waits" else [frame[4:]]

    place.handler.on_frame = answer
    busy, other = await place.connect(), await place.connect()
    await busy.send(frame_of(b"MR waits") + frame_of(b"MR later"))
    await until(lambda: place.handler.frames == 1)
    for _ in range(20):
        await other.send(frame_of(b"MR small"))
        assert await other.receive(8) == b"MR small"
    assert (steps, place.handler.frames) == (0, 21)
    done.set_result("at last ")
    assert await busy.receive(16) == b"at last MR later"


async def test_what_waits_for_something_else_is_closed_with_its_connection(serve: Serve) -> None:
    place = await serve()
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    steps: list[str] = []

    def pieces() -> Pieces:
        steps.append("begun")
        try:
            yield waited
            while True:
                yield None
        finally:
            steps.append("closed")

    place.handler.on_frame = lambda connection, frame: pieces()
    peer = await place.connect()
    await peer.send(frame_of(b"MR waits"))
    await until(lambda: bool(steps))
    (connection,) = place.server.connections
    connection.abort("as the test wants it")
    await until(lambda: not place.server.connections)
    assert steps == ["begun", "closed"]
    waited.set_result(None)
    await asyncio.sleep(0)
    assert steps == ["begun", "closed"]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("passes", [0, 3])
async def test_a_task_that_nobody_waits_for_any_more_is_cancelled_and_not_told_of(
    fails: bool, passes: int
) -> None:
    """`passes` of the loop: before the task has begun, and when it is done."""
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))

    async def work() -> None:
        if fails:
            raise ValueError("as the test wants it")

    task = loop.create_task(work())
    pieces = done(task)
    assert next(pieces) is task
    for _ in range(passes):
        await asyncio.sleep(0)
    pieces.close()
    await asyncio.wait([task])
    assert task.cancelled() is (passes == 0)
    del task, pieces
    gc.collect()
    assert told == []


async def test_connections_with_long_work_are_served_in_turn(serve: Serve) -> None:
    """Whoever asks for more of it at once does not get more of the broker."""
    place = await serve()
    steps: list[str] = []

    def pieces(name: str) -> Pieces:
        for _ in range(PIECES):
            steps.append(name)
            yield None
        return [name.encode()]

    place.handler.on_frame = lambda connection, frame: pieces(frame[7:8].decode())
    greedy, modest = await place.connect(), await place.connect()
    await greedy.send(frame_of(b"MR a....") * 5)
    await until(lambda: bool(steps))
    await modest.send(frame_of(b"MR b...."))
    assert await modest.receive(1) == b"b"
    first = steps.index("b")
    assert steps[first:].count("b") == PIECES
    last = len(steps) - 1 - steps[::-1].index("b")
    assert abs(steps[first:last].count("a") - PIECES) <= 20
    assert await greedy.receive(5) == b"aaaaa"


async def test_while_others_wait_for_their_turn_nobody_takes_a_long_one_unasked(
    serve: Serve,
) -> None:
    """Many requests of one read are a turn's work then, and a few are answered at once."""
    place = await serve()
    order: list[bytes] = []

    def pieces() -> Pieces:
        while order[-1] != b"MR at end":
            yield None
        return [b"waited"]

    def answer(connection: Connection, frame: bytes) -> Answer:
        order.append(frame[4:])
        return pieces() if frame[4:] == b"MR whole" else [b"."]

    place.handler.on_frame = answer
    busy, eager, modest = [await place.connect() for _ in range(3)]
    await busy.send(frame_of(b"MR whole"))
    await until(lambda: order == [b"MR whole"])
    await eager.send(frame_of(b"MR eager") * 40)
    assert await eager.receive(CROWDED_REQUESTS) == b"." * CROWDED_REQUESTS
    taken = order.count(b"MR eager")
    assert taken == CROWDED_REQUESTS or (taken - CROWDED_REQUESTS) % TURN_REQUESTS == 0
    await modest.send(frame_of(b"MR a few") * CROWDED_REQUESTS)
    assert await modest.receive(CROWDED_REQUESTS) == b"." * CROWDED_REQUESTS
    assert await eager.receive(40 - CROWDED_REQUESTS) == b"." * (40 - CROWDED_REQUESTS)
    await modest.send(frame_of(b"MR at end"))
    assert await busy.receive(6) == b"waited"


async def test_answers_in_pieces_keep_the_order_of_their_requests(serve: Serve) -> None:
    place = await serve()
    later: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def pieces(answer: Reply | asyncio.Future[Reply] | None) -> Pieces:
        yield None
        return answer  # type: ignore[return-value]

    answers: dict[bytes, Answer] = {
        b"MR one..": pieces([b"1"]),
        b"MR two..": pieces(later),
        b"MR three": [b"3"],
        b"MR none.": pieces(None),
        b"MR four.": [b"4"],
    }
    place.handler.on_frame = lambda connection, frame: answers[frame[4:]]
    peer = await place.connect()
    await peer.send(b"".join(map(frame_of, answers)))
    await until(lambda: place.handler.frames == len(answers))
    later.set_result([b"2"])
    assert await peer.receive(4) == b"1234"


async def test_work_of_a_lost_connection_is_closed_and_not_finished(serve: Serve) -> None:
    place = await serve()
    ends: list[str] = []

    def pieces() -> Pieces:
        ends.append("begun")
        try:
            while True:
                yield None
        finally:
            ends.append("closed")

    place.handler.on_frame = lambda connection, frame: pieces()
    peer = await place.connect()
    await peer.send(frame_of(b"MR large"))
    await until(lambda: ends == ["begun"])
    (connection,) = place.server.connections
    connection.abort("the test says so")
    await until(lambda: len(place.handler.lost) == 1)
    assert ends == ["begun", "closed"]
    await until(lambda: not place.server._shared.turns._waiting)


async def test_work_that_fails_ends_its_connection_alone(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    place = await serve()
    met: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: met.append(context))

    def pieces() -> Pieces:
        yield None
        raise RuntimeError("planted")

    place.handler.on_frame = lambda connection, frame: (
        pieces() if frame[4:] == b"MR large" else [b"small"]
    )
    busy, other = await place.connect(), await place.connect()
    await busy.send(frame_of(b"MR large"))
    assert await busy.receive(5) == b""
    await other.send(frame_of(b"MR small"))
    assert await other.receive(5) == b"small"
    assert [str(context["exception"]) for context in met] == ["planted"]


async def test_frames_that_are_announced_and_not_sent_hold_no_memory(serve: Serve) -> None:
    million = 1_000_000
    limits = Limits(
        frame_bytes_max=million, buffered_bytes_max=million + 4, request_memory_bytes=2 * million
    )
    place = await serve(limits=limits)
    place.handler.on_frame = lambda connection, frame: [b"%d" % len(frame)]
    for _ in range(50):
        silent = await place.connect()
        await silent.send((60_000).to_bytes(4, "big") + b"MR")
    await until(lambda: len(place.server.connections) == 50)
    await until(lambda: all(c.bytes_in == 6 for c in place.server.connections))
    assert place.server.memory.used <= 50 * 8_192
    peer = await place.connect()
    await until(lambda: len(place.server.connections) == 51)
    list(place.server.connections)[-1].greeted()
    await peer.send(frame_of(bytes(million)))
    assert await peer.receive(7) == b"1000004"


async def test_who_holds_memory_that_others_wait_for_must_go_on_sending(serve: Serve) -> None:
    million = 1_000_000
    limits = Limits(
        frame_bytes_max=million,
        frame_bytes_max_before_hello=million,
        buffered_bytes_max=million + 4,
        request_memory_bytes=million + 4,
        first_frame_timeout_ms=600_000,
        frame_timeout_ms=600_000,
    )
    place = await serve(limits=limits)
    place.handler.on_frame = lambda connection, frame: [b"%d" % len(frame)]
    slow = [await place.connect() for _ in range(3)]
    for peer in slow:
        peer.send_what_fits(frame_of(bytes(million))[:500_000])
    memory = place.server.memory
    await until(lambda: memory.waiting_count > 0)
    assert memory.used <= 2 * (million + 4)
    honest = await place.connect()
    sent = honest.send_what_fits(frame_of(bytes(100_000)))
    for cut_off in range(1, 4):
        while len(place.handler.lost) < cut_off:
            place.pass_time(limits.scarce_timeout_ms)
            await asyncio.sleep(0)
        if not memory.waiting_count:
            break
    assert all("held memory" in lost.close_reason for lost in place.handler.lost)
    await honest.send(frame_of(bytes(100_000))[sent:])
    assert await honest.receive(6) == b"100004"
