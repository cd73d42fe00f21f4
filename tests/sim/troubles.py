"""Faults, one after the other, with pauses in which things may recover, or not.

Owns what each kind of trouble does to broker, clients, network and disk, and that it ends.
"""

from __future__ import annotations

import asyncio

from millrace_simulation.network import Link
from millrace_simulation.world import Rng, World
from tests.sim.clients import Clients
from tests.sim.options import Options
from tests.sim.rot import Rot
from tests.sim.supervisor import FULL_ROOMS_BYTES, Supervisor
from tests.sim.topics import Topics

_SLOWER = 8
"""How much longer everything takes while a network is slow or a disk is busy."""
_STEPS_MS = (-1_200_000, -60_000, -2_000, 0, 2_000, 60_000, 1_200_000)
"""How far a wall clock may jump from where it was. With an hour records would be refused."""


class Troubles:
    """What goes wrong in one run."""

    def __init__(
        self,
        world: World,
        options: Options,
        *,
        brokers: list[Supervisor],
        topics: Topics,
        clients: Clients,
        rot: Rot,
        rng: Rng,
    ) -> None:
        self._world = world
        self._options = options
        self._brokers = brokers
        self._broker = brokers[0]
        """The one that the next trouble is for."""
        self._topics = topics
        self._clients = clients
        self._damage = rot
        self._rng = rng

    async def run(self) -> None:
        """Returns after the time that the options give to trouble."""
        options, rng, loop = self._options, self._rng, self._world.loop
        until_s = loop.time() + options.trouble_s
        if not options.troubles:
            await asyncio.sleep(options.trouble_s)
            return
        while loop.time() < until_s:
            await asyncio.sleep(rng.expovariate(1 / options.trouble_every_s))
            kind = rng.choice(options.troubles)
            self._broker = rng.choice(self._brokers)
            self._world.trace.note(f"trouble: {kind}")
            self._world.trace.sometimes(f"trouble: {kind}")
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

    async def _election(self, rng: Rng) -> None:
        topics = self._topics.at(self._broker)
        if topics:
            topic = rng.choice(topics)
            await self._broker.lead_anew(topic.name, rng.randrange(topic.partitions))

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
        await asyncio.sleep(rng.random() * 3)
        self._world.network.latency_max_s /= _SLOWER

    async def _busy(self, rng: Rng) -> None:
        self._world.blocking_max_s *= _SLOWER
        await asyncio.sleep(rng.random() * 3)
        self._world.blocking_max_s /= _SLOWER

    async def _full(self, rng: Rng) -> None:
        self._broker.machine.room_bytes = rng.choice(FULL_ROOMS_BYTES)
        await asyncio.sleep(rng.random() * 3)
        self._broker.machine.room_bytes = None

    async def _full_start(self, rng: Rng) -> None:
        await self._broker.start_full(rng)
        await asyncio.sleep(rng.random() * 5)
        self._broker.machine.room_bytes = None

    async def _write_error(self, rng: Rng) -> None:
        self._broker.machine.next_fails = "write"

    async def _sync_error(self, rng: Rng) -> None:
        self._broker.machine.next_fails = "sync"

    async def _read_error(self, rng: Rng) -> None:
        self._broker.machine.next_fails = "read"

    async def _client_kill(self, rng: Rng) -> None:
        self._clients.kill(rng)

    async def _client_pause(self, rng: Rng) -> None:
        await self._clients.pause(rng, rng.choice((0.1, 1, 10)) * rng.random())

    async def _client_cancel(self, rng: Rng) -> None:
        await self._clients.cancel(rng)

    async def _rot(self, rng: Rng) -> None:
        # How far a log was synced is known exactly after a kill. After a power cut it may be known
        # only as of some time before, and damage behind that cannot be told from a torn tail: so
        # the power must not be cut before a start has looked at damage to what is so young.
        if not self._broker.is_up:
            return
        self._damage.damage(self._broker.name, self._broker.machine.disk, rng)
        if rng.random() < 0.8 or "power" in self._options.troubles:
            await self._kill(rng)
            await self._broker.until_up()
