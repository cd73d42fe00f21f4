"""What goes wrong in a run besides what the simulation has: clients, elections, starts, damage."""

from __future__ import annotations

import asyncio

from millrace_simulation.faults import Faults
from millrace_simulation.world import Rng, World
from tests.sim.clients import Clients
from tests.sim.options import Options
from tests.sim.rot import Rot
from tests.sim.supervisor import Supervisor
from tests.sim.topics import Topics


class Troubles(Faults[Supervisor]):
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
        super().__init__(
            world, options.troubles, every_s=options.trouble_every_s, brokers=brokers, rng=rng
        )
        self._options = options
        self._topics = topics
        self._clients = clients
        self._damage = rot

    async def _election(self, rng: Rng) -> None:
        topics = self._topics.at(self._broker)
        if topics:
            topic = rng.choice(topics)
            await self._broker.lead_anew(topic.name, rng.randrange(topic.partitions))

    async def _full_start(self, rng: Rng) -> None:
        await self._broker.start_full(rng)
        await asyncio.sleep(rng.random() * 5)
        self._broker.machine.room_bytes = None

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
