"""What goes wrong with a cluster besides its brokers: an operator moves replicas meanwhile."""

from __future__ import annotations

import asyncio

from millrace import Admin
from millrace.errors import MillraceError
from millrace_simulation.world import Rng
from tests.sim.troubles import Troubles

PATIENCE_S = 5.0
"""How long the operator waits for an answer. Reassignments go on without him."""


class ClusterTroubles(Troubles):
    """What goes wrong in one run."""

    async def _move(self, rng: Rng) -> None:
        """Some partitions of a topic are to have other replicas, or only another order of them."""
        topics = list(self._topics.present.values())
        if not topics:
            return
        topic = rng.choice(topics)
        ids = range(1, len(self._brokers) + 1)
        replicas = {
            where: rng.sample(ids, self._options.replication_factor or 1)
            for where in topic.wheres
            if rng.random() < 0.7
        }
        is_replaced = rng.random() < 0.5
        process = self._world.process("operator", "operator")
        name, world = process.name, self._world

        async def reassign() -> None:
            try:
                async with Admin(topic.servers.address, rng=rng.fork("operator")) as admin:
                    outcomes = await admin.alter_partition_reassignments(
                        replicas, replace=is_replaced
                    )
            except MillraceError as error:
                world.trace.told(name, error)
                return
            if any(outcome.error is None for outcome in outcomes.values()):
                world.trace.sometimes("replicas were moved")

        asking = world.loop.start(process, reassign())
        await asyncio.wait([asking], timeout=PATIENCE_S)
        world.end_client(process)
