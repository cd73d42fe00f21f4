"""Simulated brokers, under one seed, for your own async code: a bug is found once and replayed.

    from millrace import Admin, Consumer, Producer
    from millrace_simulation import Simulation, simulate

    async def main(sim: Simulation) -> None:
        async with Admin(sim.servers) as admin:
            await admin.create_topic("orders", partitions=3)
        sim.service("copy", copy_orders, sim.servers)   # its process is killed now and then
        ...
        await sim.faults_over()
        assert ...

    simulate(main, seed=7)

The brokers and the clients are the real ones. They run in one thread, on virtual time, on disks,
clocks and a network that fail as the seed says. The same seed is the same run.
"""

from __future__ import annotations

from millrace_simulation.loop import NotSimulated
from millrace_simulation.services import Service
from millrace_simulation.simulation import (
    FAULTS,
    Outcome,
    Simulation,
    SimulationConfig,
    SimulationFailed,
    simulate,
)

__all__ = [
    "FAULTS",
    "NotSimulated",
    "Outcome",
    "Service",
    "Simulation",
    "SimulationConfig",
    "SimulationFailed",
    "simulate",
]
