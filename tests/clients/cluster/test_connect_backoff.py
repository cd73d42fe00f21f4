"""A client that cannot reach a broker dials it at a bounded rate, whatever it has to retry."""

from __future__ import annotations

import asyncio
import random

import pytest

from millrace import Admin
from millrace._cluster.connect_backoff import ADDRESSES_MAX, ConnectBackoff
from millrace.config import ClientConfig
from millrace.errors import ConnectionFailed
from tests.clients.fake_broker import FakeBroker

HERE, THERE = ("127.0.0.1", 9092), ("127.0.0.2", 9092)


@pytest.fixture
def backoff() -> ConnectBackoff:
    config = ClientConfig(retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    return ConnectBackoff(config, random.Random(1))


def pause_ms(backoff: ConnectBackoff, now_ms: int) -> int:
    """For how long after `now_ms` the address is not dialed."""
    for waited_ms in range(2_000):
        try:
            backoff.check(HERE, now_ms + waited_ms)
        except ConnectionFailed:
            continue
        return waited_ms
    raise AssertionError("it is never dialed again")


def test_pauses_grow_to_the_maximum_and_end_with_a_success(backoff: ConnectBackoff) -> None:
    now_ms = 0
    pauses = []
    for _ in range(6):
        backoff.failed(HERE, ConnectionFailed("refused"), now_ms)
        pauses.append(pause_ms(backoff, now_ms))
        now_ms += pauses[-1]
    for pause, full in zip(pauses, (100, 200, 400, 800, 1_000, 1_000), strict=True):
        assert full / 2 <= pause <= full
    backoff.failed(HERE, ConnectionFailed("refused"), now_ms)
    backoff.connected(HERE)
    assert pause_ms(backoff, now_ms) == 0
    backoff.failed(HERE, ConnectionFailed("refused"), now_ms)
    assert pause_ms(backoff, now_ms) <= 100


def test_the_wait_for_any_of_some_addresses_ends_with_the_first_pause(
    backoff: ConnectBackoff,
) -> None:
    backoff.failed(HERE, ConnectionFailed("refused"), 0)
    assert backoff.wait_ms([HERE, THERE], 0) == 0
    backoff.failed(THERE, ConnectionFailed("refused"), 40)
    assert backoff.wait_ms([THERE, HERE], 40) == pause_ms(backoff, 40)
    assert backoff.wait_ms([THERE, HERE], 500) == 0
    assert backoff.wait_ms([], 0) == 0


def test_failures_at_the_same_time_are_one(backoff: ConnectBackoff) -> None:
    backoff.failed(HERE, ConnectionFailed("first"), 0)
    pause = pause_ms(backoff, 0)
    for _ in range(5):
        backoff.failed(HERE, ConnectionFailed("second"), 10)
    assert pause_ms(backoff, 0) == pause
    backoff.check(THERE, 0)


def test_failed_addresses_are_bounded(backoff: ConnectBackoff) -> None:
    backoff.failed(HERE, ConnectionFailed("refused"), 0)
    for port in range(ADDRESSES_MAX):
        with pytest.raises(ConnectionFailed):
            backoff.check(HERE, 0)
        backoff.failed((THERE[0], port), ConnectionFailed("refused"), 0)
    backoff.check(HERE, 0)


async def test_calls_beside_each_other_dial_a_broker_that_is_away_once() -> None:
    dialed = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dialed
        dialed += 1
        writer.close()

    async with (
        FakeBroker({"t": 1}) as broker,
        Admin(broker.address, retry_backoff_ms=600_000, retry_backoff_max_ms=600_000) as admin,
    ):
        await broker.stop()
        server = await asyncio.start_server(hang_up, broker.host, broker.port)
        try:
            with pytest.raises(ConnectionFailed):
                await admin.list_topics()
            # They wait for the next try, and not for ever.
            calls = [asyncio.wait_for(admin.list_topics(), 0.1) for _ in range(10)]
            errors = await asyncio.gather(*calls, return_exceptions=True)
        finally:
            server.close()
    assert {type(error) for error in errors} == {TimeoutError}
    assert dialed == 1


async def test_a_call_waits_for_the_next_try_of_a_broker_that_is_back() -> None:
    async with (
        FakeBroker({"t": 1}) as broker,
        Admin(broker.address, request_timeout_ms=3_000, retry_backoff_max_ms=100) as admin,
    ):
        await broker.stop()
        with pytest.raises(ConnectionFailed):
            await admin.list_topics()
        await broker.start()
        assert await admin.list_topics() == ["t"]
