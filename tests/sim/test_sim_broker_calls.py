"""A broker calls another broker on the simulated network, and each of them dies in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import pytest

from millrace_server.config import BrokerConfig
from millrace_server.environment.seams import Environment
from millrace_server.node import Node
from millrace_simulation.machine import Machine
from millrace_simulation.world import Rng, World
from millrace_wire.connection import Connection
from millrace_wire.errors import ConnectFailed, ConnectionLost, RequestTimedOut
from tests.connection.broker_calls import (
    CONFIG,
    PIPELINED,
    append_pipelined,
    call_broker,
    create_topic,
    metadata,
    read,
)

SEEDS = range(6)
HOSTS = ("10.0.0.1", "10.0.0.2")
OTHER = (HOSTS[1], 9092)
NEVER_MS = 3_600_000
FAST = replace(CONFIG, connect_timeout_ms=5_000)


@dataclass
class Brokers:
    """Two brokers on machines of their own; the code of a test runs in the first's process."""

    world: World
    env: Environment
    other: Machine

    async def call(self) -> Connection:
        """A connection to the other broker."""
        return await call_broker(self.env, OTHER, FAST)


def run(seed: int, test: Callable[[Brokers], Coroutine[Any, Any, None]]) -> str:
    """Runs a test in the process of the first broker; returns the digest of the run."""
    world = World(
        Rng(f"calls/{seed}"),
        latency_max_s=0.01,
        blocking_max_s=0.002,
        window_bytes=1 << 16,
        segment_bytes=1500,
        turns_max=500_000,
    )
    first, other = Machine(world, "first", HOSTS[0]), Machine(world, "other", HOSTS[1])

    async def whole() -> None:
        process, env = first.boot()
        other_process, other_env = other.boot()
        for where, of, host in zip((process, other_process), (env, other_env), HOSTS, strict=True):
            config = BrokerConfig(
                listen=f"{host}:9092", insecure_listen=True, topic={"retention.ms": "-1"}
            )
            await world.loop.start(where, Node(config, of).start())
        await world.loop.start(process, test(Brokers(world, env, other)))

    try:
        world.run(whole())
        assert world.trace.violations == []
        return world.trace.digest
    finally:
        world.close()


async def pipelining(brokers: Brokers) -> None:
    connection = await brokers.call()
    await create_topic(connection)
    assert (await metadata(connection)).topics[0].error_code == 0
    assert await append_pipelined(connection) == list(range(PIPELINED))
    assert await read(connection, 0) == [b"%d" % number for number in range(PIPELINED)]
    connection.close()


async def overdue(brokers: Brokers) -> None:
    connection = await brokers.call()
    await create_topic(connection)
    began_s = brokers.world.loop.time()
    with pytest.raises(RequestTimedOut, match="did not respond to FETCH in time"):
        await read(connection, 0, max_wait_ms=NEVER_MS, timeout_ms=700)
    assert 0.69 <= brokers.world.loop.time() - began_s < 0.8


async def pending(connection: Connection, timeout_ms: int) -> list[asyncio.Task[list[bytes]]]:
    """Three long polls that are in flight."""
    tasks = [
        asyncio.create_task(read(connection, 0, max_wait_ms=NEVER_MS, timeout_ms=timeout_ms))
        for _ in range(3)
    ]
    await asyncio.sleep(1)
    return tasks


async def killed(brokers: Brokers) -> None:
    connection = await brokers.call()
    await create_topic(connection)
    tasks = await pending(connection, NEVER_MS)
    brokers.other.kill()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3
    with pytest.raises(ConnectFailed, match="Connection refused"):
        await brokers.call()


async def without_power(brokers: Brokers) -> None:
    connection = await brokers.call()
    await create_topic(connection)
    tasks = await pending(connection, 3_000)
    brokers.other.cut_power()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [RequestTimedOut] * 3
    with pytest.raises(ConnectFailed, match=r"no response from .* within 5000 ms"):
        await brokers.call()


@pytest.mark.parametrize("test", [pipelining, overdue, killed, without_power])
def test_a_broker_calls_another_under_every_seed(
    test: Callable[[Brokers], Coroutine[Any, Any, None]],
) -> None:
    for seed in SEEDS:
        run(seed, test)


def test_a_seed_of_two_brokers_is_the_same_run_twice() -> None:
    assert run(1, pipelining) == run(1, pipelining)
    assert run(1, killed) != run(2, killed)
