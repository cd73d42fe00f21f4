"""Attacks by number: connections that are silent, come and go, or hold responses."""

from __future__ import annotations

import asyncio
import resource
import struct
from contextlib import AsyncExitStack, suppress

from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import FRAME_BYTES_MAX, FRAME_BYTES_MAX_BEFORE_HELLO
from millrace_protocol.messages.statistics import (
    DescribeStatisticsRequest,
    DescribeStatisticsResponse,
)
from tests.broker.wire import batch, connect, connect_text, fetch_request, reset
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.hostile.against_frames import WHOLE
from tests.hostile.attack import hostile, hostile_by_waiting, lives
from tests.hostile.target import GOOD, LARGE, PARTITIONS, TOPIC, Target

AT_A_TIME = 100
"""Connections that are made at once: the listener's queue is short."""


def _crowd(target: Target, quick: int, full: int) -> int:
    """As many connections as asked, or as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if target.full and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return min(target.sized(quick, full), soft - 200)


async def _connections(
    target: Target, count: int
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    made: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    while len(made) < count:
        at_once = min(AT_A_TIME, count - len(made))
        made += await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", target.port) for _ in range(at_once))
        )
    return made


async def _hang_up(
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]],
) -> None:
    for _, writer in connections:
        # The broker may have been faster.
        with suppress(OSError):
            reset(writer)
    await asyncio.sleep(0)


@hostile_by_waiting
async def connections_that_say_nothing(target: Target) -> str:
    count = _crowd(target, 500, 10_000)
    before = target.open_files
    connections = await _connections(target, count)
    for reader, writer in connections:
        async with asyncio.timeout(HANG_TIMEOUT_S):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
    await target.until(lambda: target.open_files <= before + 5)
    return f"{count} closed"


@hostile
async def connections_that_announce_a_frame_and_wait(target: Target) -> str:
    """Each says only how much it will send: that must not be what the broker holds."""
    count = _crowd(target, 500, 10_000)
    connections = await _connections(target, count)
    for _, writer in connections:
        writer.write(struct.pack(">I", FRAME_BYTES_MAX_BEFORE_HELLO))
    await asyncio.gather(*(writer.drain() for _, writer in connections), return_exceptions=True)
    async with connect(target.port) as wire:
        await lives(wire)
    await _hang_up(connections)
    return f"{count} waited for, or those who came last; others answered"


@hostile
async def large_frames_that_never_come(target: Target) -> str:
    """They may take the memory for requests; small requests of others pass."""
    async with AsyncExitStack() as stack:
        for _ in range(target.sized(40, 200)):
            wire = await stack.enter_async_context(connect(target.port))
            wire.writer.write(struct.pack(">I", FRAME_BYTES_MAX))
            await wire.writer.drain()
        other = await stack.enter_async_context(connect(target.port))
        await lives(other)
    return "waited for; others answered"


@hostile
async def connections_that_come_and_go(target: Target) -> str:
    before = target.open_files
    for number in range(target.sized(300, 20_000) // 10):
        connections = await _connections(target, 10)
        for index, (_, writer) in enumerate(connections):
            if index % 2:
                writer.write(WHOLE if number % 2 else WHOLE[:9])
        await _hang_up(connections)
    async with connect(target.port) as wire:
        await lives(wire)
    await target.until(lambda: target.open_files <= before + 20)
    return "closed"


@hostile
async def bad_frames_from_ever_new_connections(target: Target) -> str:
    """Each is worth a line of the log to its sender; the log must not grow with them."""
    before = target.logged_bytes
    count = target.sized(500, 20_000)
    for _ in range(count // 50):
        connections = await _connections(target, 50)
        for _, writer in connections:
            writer.write(WHOLE[:4] + b"XX" + WHOLE[6:])
        for reader, writer in connections:
            await reader.read()
            writer.close()
    logged = target.logged_bytes - before
    assert logged < 64 << 10, f"{count} bad frames made {logged} bytes of log"
    return f"closed, {logged} bytes logged"


@hostile
async def long_polls_without_end(target: Target) -> str:
    """As many as may be in flight, for as long as a request can say; then they are gone."""
    async with connect(target.port) as other:
        end = (await other.offset(TOPIC, -1)).offset
        for _ in range(target.sized(20, 500)):
            async with connect(target.port) as wire:
                for _ in range(200):
                    wire.send(
                        fetch_request([(TOPIC, 0, end)], max_wait_ms=2**31 - 1, min_bytes=2**31 - 1)
                    )
                await wire.writer.drain()
                wire.reset()
        await lives(other)
    return "closed"


@hostile
async def long_polls_that_every_append_wakes(target: Target) -> str:
    """Each names a partition as often as it may, and wants more than will ever come."""
    many = [(TOPIC, number, 0) for number in range(4)] + [(GOOD, 0, 0)] * 1_996
    greedy = fetch_request(
        many,
        max_wait_ms=2**31 - 1,
        min_bytes=2**31 - 1,
        max_bytes=2**31 - 1,
        partition_bytes=1,
    )
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(connect(target.port))
        for _ in range(target.sized(1, 10)):
            wire = await stack.enter_async_context(connect(target.port))
            for _ in range(60):
                wire.send(greedy)
            await wire.writer.drain()
        for _ in range(target.sized(5, 200)):
            result = await other.produce(GOOD, batch(b"wake"))
            assert result.error_code == ErrorCode.NONE
    return "waited for"


@hostile
async def unread_responses(target: Target) -> str:
    """Fetches of a mebibyte each, never read: the answers stay in the files, not in memory."""
    async with AsyncExitStack() as stack:
        for _ in range(target.sized(10, 100)):
            wire = await stack.enter_async_context(connect(target.port))
            for _ in range(64):
                wire.send(fetch_request([(LARGE, n, 0) for n in range(PARTITIONS)]))
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        other = await stack.enter_async_context(connect(target.port))
        await lives(other)
    return "not read any further"


@hostile_by_waiting
async def unread_responses_end(target: Target) -> str:
    async with connect_text(target.port) as text:
        answer = await text.ask("HELP")
        port = text.writer.get_extra_info("sockname")[1]
        assert target.holds_connection_from(port)
        text.writer.transport.pause_reading()  # type: ignore[attr-defined]
        text.type(*["HELP"] * 20_000)
        await target.until(lambda: not target.holds_connection_from(port))
        text.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with suppress(ConnectionResetError):
            assert len((await text.rest()).splitlines()) < 20_000 * len(answer)
    return "closed"


@hostile
async def unread_tails(target: Target) -> str:
    before = target.open_files
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(connect(target.port))
        for _ in range(target.sized(50, 1_000)):
            text = await stack.enter_async_context(connect_text(target.port))
            text.writer.transport.pause_reading()  # type: ignore[attr-defined]
            text.type(f"TAIL {TOPIC} 3")
        for _ in range(50):
            result = await wire.produce(TOPIC, batch(b"\xff" * 100_000), partition=3)
            assert result.error_code == ErrorCode.NONE
    # They have ended their input only, for all that the broker knows, until something is sent to
    # them. Until then they count, and more than there may be are refused.
    async with connect(target.port) as wire:
        while target.open_files > before + 100:
            await wire.produce(TOPIC, batch(b"anybody"), partition=3)
    return "paused, closed"


@hostile
async def statistics_of_every_topic_without_end(target: Target) -> str:
    """Pipelined, of a broker with hundreds of topics."""
    count = target.sized(100, 1_000)
    async with connect(target.port) as wire:
        for number in range(target.sized(50, 500)):
            await wire.create(f"measured-{number:0>200}", configs={"durability": "os"})
        for _ in range(count):
            wire.send(DescribeStatisticsRequest(""))
        for _ in range(count):
            answer = await wire.answer(DescribeStatisticsResponse)
            assert answer.metrics
        await lives(wire)
    return "answered"
