"""Work that takes long runs in chunks, between which small requests are answered."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from millrace_server.environment.seams import Response
from millrace_server.limits import Limits
from millrace_server.loop.fair_scheduler import CHUNKS_PER_PASS, TURN_NS, FairScheduler
from millrace_server.net.connection import REQUESTS_WHEN_BUSY, Connection
from tests.server.net.conftest import Answer, ChunkClock, Serve, frame_of, until

CHUNKS = 1_000


async def test_small_requests_are_answered_between_the_chunks_of_a_large_one(serve: Serve) -> None:
    place = await serve()
    order: list[str] = []

    async def chunks() -> Response:
        for _ in range(CHUNKS):
            await place.scheduler.yield_()
        order.append("large")
        return [b"large"]

    def answer(connection: Connection, frame: bytes) -> Answer:
        if frame[4:] == b"MR large":
            return chunks()
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
@pytest.mark.parametrize(
    ("chunk_ns", "in_a_pass"),
    [(TURN_NS, 1), (TURN_NS // 2, 2), (TURN_NS // 10, 10), (0, CHUNKS_PER_PASS)],
)
async def test_chunks_run_for_a_short_time_in_a_pass_of_the_loop(
    busy: int, chunk_ns: int, in_a_pass: int
) -> None:
    scheduler = FairScheduler(asyncio.get_running_loop(), ChunkClock(chunk_ns))
    ran: list[int] = []

    def work(number: int) -> None:
        ran.append(number)
        scheduler.enter(partial(work, number))

    for number in range(busy):
        scheduler.enter(partial(work, number))
    for _ in range(20):
        before = len(ran)
        await asyncio.sleep(0)
        assert len(ran) - before == in_a_pass
    counts = [ran.count(number) for number in range(busy)]
    assert max(counts) - min(counts) <= 1


async def test_a_chunk_that_fails_delays_no_other() -> None:
    loop = asyncio.get_running_loop()
    failures: list[str] = []
    loop.set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
    scheduler = FairScheduler(loop, ChunkClock(0))
    order: list[str] = []

    def fails() -> None:
        raise RuntimeError("a bug")

    scheduler.enter(fails)
    scheduler.enter(lambda: order.append("behind it"))
    for _ in range(2):
        await asyncio.sleep(0)
    assert (failures, order) == (["a bug"], ["behind it"])


async def test_a_task_that_is_cancelled_before_its_turn_delays_no_other() -> None:
    scheduler = FairScheduler(asyncio.get_running_loop(), ChunkClock(0))
    order: list[int] = []

    async def work(number: int) -> None:
        await scheduler.yield_()
        order.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 2, 4]


async def test_work_in_chunks_may_wait_for_something_else(serve: Serve) -> None:
    """Later requests of its connection, and those of others, are answered meanwhile."""
    place = await serve()
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    steps = 0

    async def chunks() -> Response:
        nonlocal steps
        await place.scheduler.yield_()
        text = await done
        while steps < 5:
            steps += 1
            await place.scheduler.yield_()
        return [text.encode()]

    def answer(connection: Connection, frame: bytes) -> Answer:
        return chunks() if frame[4:] == b"MR waits" else [frame[4:]]

    place.handler.on_frame = answer
    busy, other = await place.connect(), await place.connect()
    await busy.send(frame_of(b"MR waits") + frame_of(b"MR later"))
    await until(lambda: place.handler.frames == 2)
    for _ in range(20):
        await other.send(frame_of(b"MR small"))
        assert await other.receive(8) == b"MR small"
    assert (steps, place.handler.frames) == (0, 22)
    done.set_result("at last ")
    assert await busy.receive(16) == b"at last MR later"


async def test_a_waiting_coroutine_is_cancelled_with_its_connection(serve: Serve) -> None:
    place = await serve()
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    steps: list[str] = []

    async def chunks() -> Response:
        steps.append("begun")
        try:
            await waited
            return [b"never"]
        finally:
            steps.append("closed")

    place.handler.on_frame = lambda connection, frame: chunks()
    peer = await place.connect()
    await peer.send(frame_of(b"MR waits"))
    await until(lambda: bool(steps))
    (connection,) = place.server.connections
    connection.abort("as the test wants it")
    await until(lambda: not place.server.connections)
    assert steps == ["begun", "closed"]
    assert waited.cancelled()
    await asyncio.sleep(0)
    assert steps == ["begun", "closed"]


async def test_a_task_that_a_request_waits_for_runs_to_its_end(serve: Serve) -> None:
    place = await serve()
    gate = asyncio.Event()
    tasks: list[asyncio.Task[bool]] = []

    async def chunks() -> Response:
        tasks.append(asyncio.get_running_loop().create_task(gate.wait()))
        await tasks[0]
        return [b"never"]

    place.handler.on_frame = lambda connection, frame: chunks()
    peer = await place.connect()
    await peer.send(frame_of(b"MR waits"))
    await until(lambda: bool(tasks))
    peer.reset()
    await until(lambda: not place.server.connections)
    gate.set()
    assert await tasks[0]


async def test_connections_with_long_work_are_served_in_turn(serve: Serve) -> None:
    """A connection that requests more of it at once does not get more of the broker."""
    place = await serve()
    steps: list[str] = []

    async def chunks(name: str) -> Response:
        for _ in range(CHUNKS):
            steps.append(name)
            await place.scheduler.yield_()
        return [name.encode()]

    place.handler.on_frame = lambda connection, frame: chunks(frame[7:8].decode())
    greedy, modest = await place.connect(), await place.connect()
    await greedy.send(frame_of(b"MR a....") * 5)
    await until(lambda: bool(steps))
    await modest.send(frame_of(b"MR b...."))
    assert await modest.receive(1) == b"b"
    first = steps.index("b")
    assert steps[first:].count("b") == CHUNKS
    last = len(steps) - 1 - steps[::-1].index("b")
    assert abs(steps[first:last].count("a") - CHUNKS) <= 20
    assert await greedy.receive(5) == b"aaaaa"


async def test_while_chunks_wait_a_connection_has_few_requests_handled_at_once(
    serve: Serve,
) -> None:
    """The rest of one read waits for the fair scheduler."""
    place = await serve()
    order: list[bytes] = []
    taken: list[int] = []

    async def chunks() -> Response:
        while order[-1] != b"MR at end":
            taken.append(order.count(b"MR eager"))
            await place.scheduler.yield_()
        return [b"waited"]

    def answer(connection: Connection, frame: bytes) -> Answer:
        order.append(frame[4:])
        return chunks() if frame[4:] == b"MR whole" else [b"."]

    place.handler.on_frame = answer
    busy, eager, modest = [await place.connect() for _ in range(3)]
    await busy.send(frame_of(b"MR whole"))
    await until(lambda: order == [b"MR whole"])
    await eager.send(frame_of(b"MR eager") * 40)
    assert await eager.receive(40) == b"." * 40
    assert REQUESTS_WHEN_BUSY in taken
    await modest.send(frame_of(b"MR a few") * REQUESTS_WHEN_BUSY)
    assert await modest.receive(REQUESTS_WHEN_BUSY) == b"." * REQUESTS_WHEN_BUSY
    await modest.send(frame_of(b"MR at end"))
    assert await busy.receive(6) == b"waited"


async def test_responses_in_chunks_keep_the_order_of_their_requests(serve: Serve) -> None:
    place = await serve()
    later: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    async def chunks(answer: Response | asyncio.Future[Response]) -> Response:
        await place.scheduler.yield_()
        return answer if isinstance(answer, list) else await answer

    answers: dict[bytes, Answer] = {
        b"MR one..": chunks([b"1"]),
        b"MR two..": chunks(later),
        b"MR three": [b"3"],
        b"MR none.": chunks([]),
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

    async def chunks() -> Response:
        ends.append("begun")
        try:
            while True:
                await place.scheduler.yield_()
        finally:
            ends.append("closed")

    place.handler.on_frame = lambda connection, frame: chunks()
    peer = await place.connect()
    await peer.send(frame_of(b"MR large"))
    await until(lambda: ends == ["begun"])
    (connection,) = place.server.connections
    connection.abort("the test says so")
    await until(lambda: len(place.handler.lost) == 1)
    assert ends == ["begun", "closed"]
    await until(lambda: not place.scheduler._waiting)


async def test_work_that_fails_ends_its_connection_alone(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    place = await serve()
    met: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: met.append(context))

    async def chunks() -> Response:
        await place.scheduler.yield_()
        raise RuntimeError("planted")

    place.handler.on_frame = lambda connection, frame: (
        chunks() if frame[4:] == b"MR large" else [b"small"]
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
    list(place.server.connections)[-1].lift_frame_limit()
    await peer.send(frame_of(bytes(million)))
    assert await peer.receive(7) == b"1000004"


async def test_a_peer_that_holds_memory_others_wait_for_must_go_on_sending(serve: Serve) -> None:
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
