"""Faults, one after the other, with pauses in which things may recover, or not.

Owns what each kind of fault does to brokers, their machines and the network, and that it ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Generic, TypeVar

from millrace_simulation.broker import SimulatedBroker
from millrace_simulation.network import Link
from millrace_simulation.world import Rng, World

B = TypeVar("B", bound=SimulatedBroker)
_FAULT = "fault: "
"""What stands before a kind in a trace and its counts."""
FULL_ROOMS_BYTES = (0, 300, 3000, 10_000)
"""What a full disk may have left."""
_SLOWER = 8
"""How much longer everything takes while a network is slow or a disk is busy."""
_STEPS_MS = (-1_200_000, -60_000, -2_000, 0, 2_000, 60_000, 1_200_000)
"""How far a wall clock may jump from where it was. With an hour records would be refused."""


class Faults(Generic[B]):
    """What goes wrong in one run. A method whose name is `_` and a kind makes a fault of it."""

    def __init__(
        self,
        world: World,
        kinds: Sequence[str],
        *,
        every_s: float,
        brokers: Sequence[B],
        rng: Rng,
    ) -> None:
        self._world = world
        self._kinds = kinds
        self._every_s = every_s
        self._brokers = brokers
        self._broker = brokers[0]
        """The one that the next fault is for."""
        self._rng = rng

    async def run(self, seconds: float) -> None:
        """Returns after so much time with faults."""
        rng, loop = self._rng, self._world.loop
        until_s = loop.time() + seconds
        if not self._kinds:
            await asyncio.sleep(seconds)
            return
        while loop.time() < until_s:
            await asyncio.sleep(rng.expovariate(1 / self._every_s))
            kind = rng.choice(self._kinds)
            self._broker = rng.choice(self._brokers)
            self._world.trace.note(f"{_FAULT}{kind}")
            self._world.trace.sometimes(f"{_FAULT}{kind}")
            await getattr(self, f"_{kind}")(rng)

    async def _kill(self, rng: Rng) -> None:
        self._broker.kill(pause_s=rng.random() * 2)

    async def _power(self, rng: Rng) -> None:
        self._broker.cut_power(pause_s=rng.random() * 2)

    async def _power_soon(self, rng: Rng) -> None:
        """In the midst of an operation, if there are so many before anything else ends the life."""
        self._broker.cut_power_soon(rng.randint(0, 40), pause_s=rng.random() * 2)

    async def _restart(self, rng: Rng) -> None:
        await self._broker.restart_in_order()

    async def _pause(self, rng: Rng) -> None:
        await self._broker.pause(
            rng.choice((0.1, 1, 10)) * rng.random(), is_killed=rng.random() < 0.2
        )

    async def _clock(self, rng: Rng) -> None:
        """The wall clock of a machine jumps."""
        self._world.trace.sometimes("a wall clock jumped")
        self._world.clock(rng.choice(self._machines())).step(rng.choice(_STEPS_MS))

    async def _reset(self, rng: Rng) -> None:
        for _ in range(rng.randint(1, 3)):
            self._world.network.break_one()

    async def _cut(self, rng: Rng) -> None:
        await self._disturb(rng, Link(is_cut=True))

    async def _link(self, rng: Rng) -> None:
        """Some links are slow, or lose segments."""
        await self._disturb(
            rng, Link(delay_s=rng.choice((0, 0.1, 1)), loss=rng.choice((0, 0.05, 0.3)))
        )

    async def _disturb(self, rng: Rng, link: Link) -> None:
        """Links between a broker and others, both ways or one way."""
        others = [name for name in self._machines() if name != self._broker.name]
        for machine in rng.sample(others, min(len(others), rng.randint(1, 3))):
            ways = [(machine, self._broker.name), (self._broker.name, machine)]
            for source, target in rng.choice((ways, ways[:1], ways[1:])):
                self._world.network.disturb(source, target, link)
        await asyncio.sleep(rng.random() * 4)
        self._world.network.heal()

    def _machines(self) -> list[str]:
        return sorted({process.machine for process in self._world.processes if process.is_alive})

    async def _slow(self, rng: Rng) -> None:
        self._world.network.latency_max_s *= _SLOWER
        try:
            await asyncio.sleep(rng.random() * 3)
        finally:
            self._world.network.latency_max_s /= _SLOWER

    async def _busy(self, rng: Rng) -> None:
        self._world.blocking_max_s *= _SLOWER
        try:
            await asyncio.sleep(rng.random() * 3)
        finally:
            self._world.blocking_max_s /= _SLOWER

    async def _full(self, rng: Rng) -> None:
        self._broker.machine.room_bytes = rng.choice(FULL_ROOMS_BYTES)
        await asyncio.sleep(rng.random() * 3)
        self._broker.machine.room_bytes = None

    async def _write_error(self, rng: Rng) -> None:
        self._broker.machine.next_fails = "write"

    async def _sync_error(self, rng: Rng) -> None:
        self._broker.machine.next_fails = "sync"

    async def _read_error(self, rng: Rng) -> None:
        self._broker.machine.next_fails = "read"

    async def _kill_all(self, rng: Rng) -> None:
        """At the same moment."""
        pause_s = rng.random() * 2
        for broker in self._brokers:
            broker.kill(pause_s=pause_s)

    async def _power_majority(self, rng: Rng) -> None:
        """Two of three, or three of five: those that are left cannot elect a controller."""
        some = rng.sample(self._brokers, len(self._brokers) // 2 + 1)
        _cut_power(some, pause_s=rng.random() * 4)
        self._world.trace.sometimes("a majority lost its power")

    async def _power_all(self, rng: Rng) -> None:
        _cut_power(self._brokers, pause_s=rng.random() * 2)
        self._world.trace.sometimes("all brokers lost their power")

    async def _isolate(self, rng: Rng) -> None:
        """A broker is cut off from the other brokers, both ways or one way. Clients reach it."""
        others = [broker.name for broker in self._brokers if broker is not self._broker]
        there = [(self._broker.name, other) for other in others]
        back = [(other, self._broker.name) for other in others]
        for source, target in rng.choice((there + back, there, back)):
            self._world.network.disturb(source, target, Link(is_cut=True))
        self._world.trace.sometimes("a broker was cut off from the others")
        await asyncio.sleep(rng.random() * 10)
        self._world.network.heal()


def fault_counts(counts: Counter[str]) -> Counter[str]:
    """How many faults of each kind there were, of all that a trace has counted."""
    return Counter(
        {
            what.removeprefix(_FAULT): count
            for what, count in counts.items()
            if what.startswith(_FAULT)
        }
    )


def _cut_power(brokers: Sequence[SimulatedBroker], *, pause_s: float) -> None:
    """Machines lose their power at the same moment."""
    for broker in brokers:
        broker.cut_power(pause_s=pause_s)
