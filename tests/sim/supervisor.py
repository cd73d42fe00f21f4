"""A broker of a run: what its clients know of it, and what ends it, or excuses it, only here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from millrace_protocol.metadata_records import PartitionChangeRecord
from millrace_server.api_error import ApiError
from millrace_server.log import CorruptLog
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.records import UnreadableMetadata
from millrace_server.node import Node
from millrace_server.partitions.storage import IDENTITY_FILE
from millrace_simulation.broker import START_S_MAX, SimulatedBroker, is_disk_error
from millrace_simulation.faults import FULL_ROOMS_BYTES
from millrace_simulation.world import Rng, World
from tests.sim.ledger import partition_name
from tests.sim.options import Options
from tests.sim.rot import Rot

ELECT_S_MAX = 30.0
_REFUSALS = (OSError, CorruptLog, UnreadableMetadata, ApiError)
"""What a broker may say of data that it cannot start with."""


class Supervisor(SimulatedBroker):
    """Implements `Servers`. `refusal` is why it does not start any more, after damage to what it
    must read."""

    def __init__(
        self,
        world: World,
        options: Options,
        number: int,
        *,
        rot: Rot,
        on_power_cut: Callable[[Supervisor], None],
    ) -> None:
        config = options.config(f"10.0.0.{number + 1}", number)
        super().__init__(world, number, config)
        self.refusal: Exception | None = None
        self._options = options
        self._rot = rot
        self._on_power_cut = on_power_cut
        self._start_refused = asyncio.Event()

    # Servers

    def wall_ms(self) -> int:
        """See `Servers`."""
        return self.machine.clock.wall_ms()

    def wall_ms_max(self) -> int:
        """See `Servers`."""
        return self.machine.clock.wall_ms_max()

    def log_bytes(self, where: tuple[str, int]) -> int:
        """The size of a partition's batches; the broker must be up."""
        assert self._node is not None
        return self._node.broker.partitions.get(*where).log.size_bytes

    def has_partition(self, where: tuple[str, int]) -> bool:
        """Whether the directory of a partition was made to its end."""
        return self.machine.disk.exists(f"{partition_name(where)}/{IDENTITY_FILE}")

    # What ends it, or stops it for a while

    def cut_power(self, *, pause_s: float) -> None:
        if self.machine.process is not None:
            super().cut_power(pause_s=pause_s)
            self._on_power_cut(self)

    async def lead_anew(self, topic: str, number: int) -> None:
        """Has the controller elect this broker again, in the next leader epoch of a partition."""
        process, node = self.machine.process, self._node
        if node is None or process is None:
            return
        node_id = self._config.node_id

        def elect(image: ClusterImage) -> list[PartitionChangeRecord]:
            found = image.topics.get(topic)
            if found is None:
                return []
            self._world.trace.sometimes("a partition was led in a new epoch")
            return [PartitionChangeRecord(found.topic_id, number, None, None, node_id, None)]

        changing = self._world.loop.start(process, _ignoring_refusals(node, elect))
        done, _ = await asyncio.wait(
            [changing, self._down], timeout=ELECT_S_MAX, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            self._world.trace.violation(f"{self.name}: no election within {ELECT_S_MAX} s")

    async def start_full(self, rng: Rng) -> bool:
        """Kills the broker and starts it on a disk without room; returns whether it is up.

        A broker that cannot write what its metadata log needs refuses to start.
        """
        if rng.random() < 0.5:
            self.kill(pause_s=0.1)
        else:
            self.cut_power(pause_s=0.1)
        self.machine.room_bytes = rng.choice(FULL_ROOMS_BYTES)
        self._start_refused = asyncio.Event()
        up = self._world.loop.create_task(self._is_up.wait())
        refused = self._world.loop.create_task(self._start_refused.wait())
        done, _ = await asyncio.wait(
            [up, refused], timeout=START_S_MAX, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (up, refused):
            task.cancel()
        if not done:
            self._world.trace.violation(f"{self.name} is not up on a full disk")
        return self.is_up

    # What it may say, and what is a bug

    def _may_refuse_start(self, error: Exception) -> bool:
        return self._options.may_refuse_start(error)

    def _start_failed(self, error: Exception) -> None:
        if self._rot.has_begun and isinstance(error, _REFUSALS):
            self._world.trace.sometimes("damage was found at a start")
            self.refusal = error
            return
        super()._start_failed(error)
        if is_disk_error(str(error)) and self.machine.room_bytes is not None:
            self._start_refused.set()

    def _may_give_up(self, causes: str) -> bool:
        return self._rot.has_begun or super()._may_give_up(causes)

    def _started(self) -> None:
        self.refusal = None

    def _not_up(self) -> None:
        if self.refusal is None:
            super()._not_up()


async def _ignoring_refusals(
    node: Node, decide: Callable[[ClusterImage], list[PartitionChangeRecord]]
) -> None:
    """A change that a full disk or a stop refuses is none."""
    with suppress(ApiError):
        await node.broker.active.change(decide)
