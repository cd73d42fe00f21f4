"""The brokers of one simulated cluster.

Owns that they are up, and how it is known that they agree. What happens to one of them is its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from millrace_server.node import Node
from millrace_simulation.broker import SimulatedBroker
from millrace_simulation.world import World

IN_SYNC_S = 60.0
"""How long after healing all replicas may take to be in sync: a follower is given up after 10 s,
comes back, and is let in by the next proposal."""
_LOOK_S = 0.2
B = TypeVar("B", bound=SimulatedBroker)


class SimulatedCluster(Generic[B]):
    """Brokers with the ids 1 to n, on machines of their own."""

    def __init__(self, world: World, brokers: Sequence[B]) -> None:
        self.brokers = brokers
        self.address = ",".join(broker.address for broker in brokers)
        self._world = world

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
        image = nodes[0].broker.image
        fenced = [each.broker_id for each in image.brokers.values() if each.is_fenced]
        if fenced:
            return f"brokers {fenced} are fenced"
        for topic in image.topics.values():
            for number, partition in enumerate(topic.partitions):
                if set(partition.isr) != set(partition.replicas):
                    return f"{topic.name}-{number}: {partition}"
        return None
