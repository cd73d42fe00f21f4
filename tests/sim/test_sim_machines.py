"""Machines of the simulator: addresses, clocks, links, and processes that are paused."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from millrace_simulation.clock import NO_SKEW, Skew
from millrace_simulation.loop import Process
from millrace_simulation.machine import Machine
from millrace_simulation.network import BACKLOG, Link
from millrace_simulation.world import Rng, World
from tests.sim.hunt import hunt
from tests.sim.mutants import acks_before_the_sync
from tests.sim.scenario import run_seed

HOST, PORT = "10.0.0.1", 9092
LATENCY_S = 0.001
WINDOW_BYTES = 8192


class Echo(asyncio.Protocol):
    """Keeps what it received; `answers` sends it back."""

    def __init__(self, *, answers: bool = False) -> None:
        self.answers = answers
        self.received = bytearray()
        self.arrived = asyncio.Event()
        self.error: Exception | None = None
        self.is_lost = False
        self.is_writing_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.arrived.set()
        if self.answers:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.error, self.is_lost = exc, True

    def pause_writing(self) -> None:
        self.is_writing_paused = True

    def resume_writing(self) -> None:
        self.is_writing_paused = False


class Machines:
    """A server on a machine of its own, and a process of another that connects to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server = Machine(world, "server", HOST)
        self.accepted: list[Echo] = []
        self.process: Process

    async def serve(self, port: int = PORT) -> None:
        """Starts the server's process."""
        self.process, env = self.server.boot()

        def accept() -> Echo:
            self.accepted.append(Echo(answers=True))
            return self.accepted[-1]

        listening = env.net.listen(
            accept, HOST, port, silent_ms_max=1_000, first_frame_bytes_max=1_000
        )
        await self.world.loop.start(self.process, listening)

    async def connect(self, host: str = HOST) -> Echo:
        """A connection from the process that runs."""
        _, protocol = await self.world.network.connect(Echo, host, PORT)
        assert isinstance(protocol, Echo)
        return protocol


def run(
    test: Callable[[Machines], Coroutine[Any, Any, None]], *, seed: int = 1, skew: Skew = NO_SKEW
) -> None:
    """Runs a test in a process on a machine called `client`."""
    world = World(
        Rng(f"machines/{seed}"),
        latency_max_s=LATENCY_S,
        blocking_max_s=0.001,
        window_bytes=WINDOW_BYTES,
        segment_bytes=1448,
        turns_max=200_000,
        skew=skew,
    )
    machines = Machines(world)

    async def whole() -> None:
        await machines.serve()
        await world.loop.start(world.process("client", "client"), test(machines))

    try:
        world.run(whole())
        assert world.trace.violations == []
    finally:
        world.close()


def test_an_address_belongs_to_one_machine_and_unknown_ones_to_none() -> None:
    async def test(machines: Machines) -> None:
        assert (await machines.connect()).transport.get_extra_info("peername")[0] == "server"
        with pytest.raises(OSError, match="No route"):
            await machines.connect("10.0.0.9")
        with pytest.raises(ConnectionRefusedError):
            await machines.connect("127.0.0.1")
        listening = machines.world.network.listen(
            Echo, HOST, 1, silent_ms_max=1, first_frame_bytes_max=1
        )
        with pytest.raises(OSError, match="Cannot assign") as refused:
            await listening
        assert refused.value.errno == errno.EADDRNOTAVAIL

    run(test)


def test_two_machines_listen_on_the_same_port() -> None:
    async def test(machines: Machines) -> None:
        other = Machine(machines.world, "other", "10.0.0.2")
        process, env = other.boot()
        listening = env.net.listen(Echo, other.host, PORT, silent_ms_max=1, first_frame_bytes_max=1)
        await machines.world.loop.start(process, listening)
        await machines.connect()
        peer, _ = (await machines.connect("10.0.0.2")).transport.get_extra_info("peername")
        assert peer == "other"
        assert len(machines.accepted) == 1

    run(test)


def test_each_machine_has_a_clock_of_its_own_and_timers_follow_it() -> None:
    skew = Skew(offset_ms=10_000, drift=0.02)
    rates = set()

    async def test(machines: Machines) -> None:
        world = machines.world
        client, server = world.clock("client"), world.clock("server")
        rates.add(round(client.rate, 6))
        assert client.monotonic_ms() != server.monotonic_ms()
        assert 0 < abs(client.wall_ms() - server.wall_ms()) <= 2 * (10_000 + 20_000)
        began_s, true_s = asyncio.get_running_loop().time(), world.now_s()
        await asyncio.sleep(100)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(100, abs=0.01)
        assert world.now_s() - true_s == pytest.approx(100 / client.rate, abs=0.01)

    for seed in range(10):
        run(test, seed=seed, skew=skew)
    assert len(rates) == 10
    assert max(rates) - min(rates) > 0.01


def test_a_wall_clock_jumps_and_timers_do_not() -> None:
    async def test(machines: Machines) -> None:
        clock = machines.world.clock("client")
        wall_ms, monotonic_ms, true_s = (
            clock.wall_ms(),
            clock.monotonic_ms(),
            machines.world.now_s(),
        )
        clock.step(-60_000)
        assert clock.wall_ms() == wall_ms - 60_000
        assert clock.wall_ms_max() == wall_ms
        assert clock.monotonic_ms() == monotonic_ms
        await asyncio.sleep(1)
        assert machines.world.now_s() - true_s == pytest.approx(1, abs=0.01)

    run(test)


def test_a_paused_process_does_nothing_and_then_all_that_was_due_in_order() -> None:
    async def test(machines: Machines) -> None:
        loop, order = machines.world.loop, []

        async def ticking() -> None:
            for number in range(3):
                await asyncio.sleep(1)
                order.append((number, round(machines.world.now_s() - began_s)))

        began_s = machines.world.now_s()
        task = loop.start(machines.process, ticking())
        await asyncio.sleep(1.5)
        machines.process.pause()
        await asyncio.sleep(8.5)
        assert order == [(0, 1)]
        loop.resume(machines.process)
        await task
        # The second timer was overdue; the third begins when the second has run.
        assert order == [(0, 1), (1, 10), (2, 11)]

    run(test)


def test_the_kernel_of_a_paused_process_takes_bytes_up_to_its_window() -> None:
    async def test(machines: Machines) -> None:
        first = await machines.connect()
        await asyncio.sleep(0.1)
        machines.process.pause()
        first.transport.write(b"x" * 200_000)
        second = await machines.connect()
        second.transport.write(b"hello")
        await asyncio.sleep(5)
        assert first.is_writing_paused
        sent = 200_000 - first.transport.get_write_buffer_size()
        assert WINDOW_BYTES - 1448 <= sent <= WINDOW_BYTES
        assert not first.received
        assert len(machines.accepted) == 1
        machines.world.loop.resume(machines.process)
        await asyncio.sleep(5)
        assert (len(first.received), bytes(second.received)) == (200_000, b"hello")

    run(test)


def test_a_paused_process_has_so_many_connections_wait_and_no_more() -> None:
    async def test(machines: Machines) -> None:
        machines.process.pause()
        connecting = [asyncio.create_task(machines.connect()) for _ in range(BACKLOG + 5)]
        await asyncio.sleep(3)
        assert sum(task.done() for task in connecting) == BACKLOG
        machines.world.loop.resume(machines.process)
        await asyncio.gather(*connecting)
        assert len(machines.accepted) == BACKLOG + 5

    run(test)


def test_a_process_that_is_killed_while_it_is_paused_runs_never_again() -> None:
    async def test(machines: Machines) -> None:
        connection = await machines.connect()
        await asyncio.sleep(0.1)
        machines.process.pause()
        connection.transport.write(b"late")
        await asyncio.sleep(1)
        machines.server.kill()
        machines.world.loop.resume(machines.process)
        await asyncio.sleep(1)
        assert connection.is_lost
        assert not machines.accepted[0].received

    run(test)


@pytest.mark.parametrize("is_forth", [True, False])
def test_a_link_is_cut_one_way_and_what_was_swallowed_arrives_when_it_heals(
    is_forth: bool,
) -> None:
    async def test(machines: Machines) -> None:
        connection = await machines.connect()
        await asyncio.sleep(0.1)
        way = ("client", "server") if is_forth else ("server", "client")
        machines.world.network.disturb(*way, Link(is_cut=True))
        connection.transport.write(b"one")
        await asyncio.sleep(5)
        assert bytes(machines.accepted[0].received) == (b"" if is_forth else b"one")
        assert not connection.received
        machines.world.network.heal()
        await asyncio.sleep(1)
        assert bytes(connection.received) == b"one"

    run(test)


def test_a_link_is_slow_one_way_or_loses_what_is_sent_again() -> None:
    async def test(machines: Machines) -> None:
        network, connection = machines.world.network, await machines.connect()
        took_s = []
        for link in (Link(), Link(delay_s=2), Link(loss=0.5)):
            network.disturb("client", "server", link)
            began_s = machines.world.now_s()
            for number in range(20):
                connection.transport.write(b"%d" % number)
                connection.arrived.clear()
                await connection.arrived.wait()
            took_s.append(machines.world.now_s() - began_s)
        quick_s, slow_s, lossy_s = took_s
        assert quick_s < 1
        assert 40 < slow_s < 41
        assert 1 < lossy_s < 20
        assert machines.world.trace.counts["a segment was lost and sent again"] > 5

    run(test)


def test_a_mutant_whose_patches_are_never_called_is_no_success() -> None:
    hunted = hunt(acks_before_the_sync, run_seed, range(0), {})
    assert not hunted.is_success
    assert "never called: Partition.is_acked" in str(hunted)
