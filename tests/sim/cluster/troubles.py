"""What goes wrong with a cluster: all that goes wrong with one broker, and with several at once."""

from __future__ import annotations

import asyncio

from millrace_simulation.network import Link
from millrace_simulation.world import Rng, World
from tests.sim.clients import Clients
from tests.sim.cluster.cluster import SimCluster
from tests.sim.cluster.options import ClusterOptions
from tests.sim.rot import Rot
from tests.sim.topics import Topics
from tests.sim.troubles import Troubles


class ClusterTroubles(Troubles):
    """What goes wrong in one run."""

    def __init__(
        self,
        world: World,
        options: ClusterOptions,
        cluster: SimCluster,
        *,
        topics: Topics,
        clients: Clients,
        rot: Rot,
        rng: Rng,
    ) -> None:
        super().__init__(
            world,
            options,
            brokers=cluster.brokers,
            topics=topics,
            clients=clients,
            rot=rot,
            rng=rng,
        )
        self._cluster = cluster
        self._majority = options.majority

    async def _kill_all(self, rng: Rng) -> None:
        self._cluster.kill_all(pause_s=rng.random() * 2)

    async def _power_majority(self, rng: Rng) -> None:
        """Two of three, or three of five: those that are left cannot elect a controller."""
        some = rng.sample(self._brokers, self._majority)
        self._cluster.cut_power(some, pause_s=rng.random() * 4)
        self._world.trace.sometimes("a majority lost its power")

    async def _power_all(self, rng: Rng) -> None:
        self._cluster.cut_power(self._brokers, pause_s=rng.random() * 2)
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
