"""The simulated cluster as its clients have it."""

from __future__ import annotations

from millrace_server.metadata.image import Topic
from millrace_simulation.cluster import SimulatedCluster
from millrace_simulation.world import World
from tests.sim.cluster.options import ClusterOptions
from tests.sim.rot import Rot
from tests.sim.supervisor import Supervisor


class SimCluster(SimulatedCluster[Supervisor]):
    """Implements `Servers`. `refusal` is always None: nothing damages what is durable."""

    name = "cluster"
    refusal: Exception | None = None

    def __init__(self, world: World, options: ClusterOptions, rot: Rot) -> None:
        brokers = [
            Supervisor(world, options, number, rot=rot, on_power_cut=lambda _: None)
            for number in range(options.brokers)
        ]
        super().__init__(world, brokers)

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
