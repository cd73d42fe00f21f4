"""The brokers of one simulated cluster, and what happens to several of them at once.

Owns the brokers' machines. What happens to one of them is its supervisor's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from millrace_server.metadata.image import Topic
from millrace_server.node import Node
from millrace_simulation.world import World
from tests.sim.cluster.options import ClusterOptions
from tests.sim.rot import Rot
from tests.sim.supervisor import Supervisor

IN_SYNC_S = 60.0
"""How long after healing all replicas may take to be in sync: a follower is given up after 10 s,
comes back, and is let in by the next proposal."""
_LOOK_S = 0.2


class SimCluster:
    """Implements `Servers`. `refusal` is always None: nothing damages what is durable."""

    name = "cluster"
    refusal: Exception | None = None

    def __init__(self, world: World, options: ClusterOptions, rot: Rot) -> None:
        self.brokers = [
            Supervisor(world, options, number, rot=rot, on_power_cut=lambda _: None)
            for number in range(options.brokers)
        ]
        self.address = ",".join(broker.address for broker in self.brokers)
        self._world = world
        self._options = options

    def keep_up(self) -> list[asyncio.Task[None]]:
        """Starts the brokers, and again whenever one has ended, until the tasks are cancelled."""
        return [self._world.loop.create_task(broker.keep_up()) for broker in self.brokers]

    async def until_up(self) -> None:
        """Returns when every broker is up."""
        for broker in self.brokers:
            await broker.until_up()

    async def heal(self) -> None:
        """Every disk has room and works; returns when every broker is up."""
        for broker in self.brokers:
            broker.machine.repair()
        await self.until_up()

    @property
    def nodes(self) -> Iterator[Node]:
        """The brokers that run."""
        return (broker.node for broker in self.brokers if broker.node is not None)

    async def until_in_sync(self) -> None:
        """Returns when every replica of every partition is in sync, and every broker knows it."""
        until_s = self._world.now_s() + IN_SYNC_S
        while (missing := self._missing()) is not None:
            if self._world.now_s() > until_s:
                self._world.trace.violation(f"not in sync within {IN_SYNC_S} s: {missing}")
                return
            await asyncio.sleep(_LOOK_S)

    def _missing(self) -> str | None:
        """What is not in sync; None when all is."""
        nodes = list(self.nodes)
        if len(nodes) < len(self.brokers):
            return f"{len(nodes)} brokers are up"
        ends = {node.broker.metadata.publisher.applied_offset for node in nodes}
        if len(ends) > 1:
            return f"brokers have applied the metadata up to {sorted(ends)}"
        for topic in nodes[0].broker.image.topics.values():
            for number, partition in enumerate(topic.partitions):
                if set(partition.isr) != set(partition.replicas):
                    return f"{topic.name}-{number}: {partition}"
        return None

    # Servers

    def wall_ms(self) -> int:
        """The earliest of the brokers' wall clocks: any of them may lead."""
        return min(broker.wall_ms() for broker in self.brokers)

    def wall_ms_max(self) -> int:
        return max(broker.wall_ms_max() for broker in self.brokers)

    def log_bytes(self, where: tuple[str, int]) -> int:
        leader = self._topic(where[0]).partitions[where[1]].leader
        return self.brokers[leader - 1].log_bytes(where)

    def _topic(self, name: str) -> Topic:
        images = [node.broker.image for node in self.nodes]
        return max(images, key=lambda image: image.end_offset).topics[name]

    # Faults of several brokers

    def kill_all(self, *, pause_s: float) -> None:
        """kill -9 of every broker at the same moment."""
        for broker in self.brokers:
            broker.kill(pause_s=pause_s)

    def cut_power(self, brokers: list[Supervisor], *, pause_s: float) -> None:
        """Machines lose their power at the same moment."""
        for broker in brokers:
            broker.cut_power(pause_s=pause_s)
