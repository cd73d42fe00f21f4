"""Faults, one after the other, with pauses in which things may recover, or not.

Owns what each kind of trouble does to broker, clients, network and disk, and that it ends.
"""

from __future__ import annotations

import asyncio

from tests.sim.clients import Clients
from tests.sim.host import Rng, World
from tests.sim.options import Options
from tests.sim.rot import Rot
from tests.sim.supervisor import Supervisor

_SLOWER = 8
"""How much longer everything takes while a network is slow or a disk is busy."""


class Troubles:
    """What goes wrong in one run."""

    def __init__(
        self,
        world: World,
        options: Options,
        *,
        broker: Supervisor,
        clients: Clients,
        rot: Rot,
        rng: Rng,
    ) -> None:
        self._world = world
        self._options = options
        self._broker = broker
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

    async def _reset(self, rng: Rng) -> None:
        for _ in range(rng.randint(1, 3)):
            self._world.network.break_one()

    async def _cut(self, rng: Rng) -> None:
        others = sorted({p.machine for p in self._world.processes if p.is_alive})
        for machine in rng.sample(others, min(len(others), rng.randint(1, 3))):
            ways = [(machine, "broker"), ("broker", machine)]
            for source, target in rng.choice((ways, ways[:1], ways[1:])):
                if source != target:
                    self._world.network.cut(source, target)
        await asyncio.sleep(rng.random() * 4)
        self._world.network.heal()

    async def _slow(self, rng: Rng) -> None:
        self._world.network.latency_max_s *= _SLOWER
        await asyncio.sleep(rng.random() * 3)
        self._world.network.latency_max_s /= _SLOWER

    async def _busy(self, rng: Rng) -> None:
        self._world.blocking_max_s *= _SLOWER
        await asyncio.sleep(rng.random() * 3)
        self._world.blocking_max_s /= _SLOWER

    async def _full(self, rng: Rng) -> None:
        self._broker.machine.room_bytes = rng.choice((0, 300, 3000, 10_000))
        await asyncio.sleep(rng.random() * 3)
        self._broker.machine.room_bytes = None

    async def _write_error(self, rng: Rng) -> None:
        self._broker.machine.next_fails = "write"

    async def _sync_error(self, rng: Rng) -> None:
        self._broker.machine.next_fails = "sync"

    async def _read_error(self, rng: Rng) -> None:
        self._broker.machine.next_fails = "read"

    async def _client_kill(self, rng: Rng) -> None:
        self._clients.kill(rng)

    async def _client_cancel(self, rng: Rng) -> None:
        await self._clients.cancel(rng)

    async def _rot(self, rng: Rng) -> None:
        # How far a log was synced is known exactly after a kill. After a power cut it may be known
        # only as of some time before, and damage behind that cannot be told from a torn tail: so
        # whoever damages what is so young must not cut the power before a start has looked at it.
        if not self._broker.is_up:
            return
        self._damage.damage(self._broker.machine.disk, rng)
        if rng.random() < 0.8 or "power" in self._options.troubles:
            await self._kill(rng)
            await self._broker.until_up()
