"""The supervisor of one broker: it starts the broker again whatever ended it.

Owns the broker's lives. A life ends by a kill, a power cut, an orderly stop, or by the broker
itself after a disk error; the next begins after a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from millrace_protocol.metadata_records import PartitionChangeRecord
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.log import CorruptLog
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.records import UnreadableMetadata
from millrace_server.node import Node
from millrace_server.partitions.storage import IDENTITY_FILE
from millrace_simulation.loop import Process
from millrace_simulation.machine import Machine
from millrace_simulation.world import Rng, World
from tests.sim.ledger import partition_name
from tests.sim.options import PORT, Options
from tests.sim.rot import Rot
from tests.sim.situations import is_disk_error

FULL_ROOMS_BYTES = (0, 300, 3000, 10_000)
"""What a full disk may have left."""
STOP_S_MAX = 30.0
START_S_MAX = 30.0
ELECT_S_MAX = 30.0
_RETRY_S = 0.5
_REFUSALS = (OSError, CorruptLog, UnreadableMetadata, ApiError)
"""What a broker may say of data that it cannot start with."""


class Supervisor:
    """Keeps one broker up while `keep_up` runs.

    `refusal` is why it does not start any more, after damage to what it must read.
    """

    def __init__(
        self,
        world: World,
        options: Options,
        number: int,
        *,
        rot: Rot,
        on_power_cut: Callable[[Supervisor], None],
    ) -> None:
        self.name = f"broker{number}"
        self.machine = Machine(world, self.name, f"10.0.0.{number + 1}")
        self.address = f"{self.machine.host}:{PORT}"
        self.refusal: Exception | None = None
        self._world = world
        self._options = options
        self._config = options.config(self.machine.host, number)
        self._rot = rot
        self._on_power_cut = on_power_cut
        self._rng = world.rng.fork(f"supervisor {number}")
        self._node: Node | None = None
        self._pause_s = 0.0
        self._down: asyncio.Future[None] = world.loop.create_future()
        self._is_up = asyncio.Event()
        self._start_refused = asyncio.Event()

    async def keep_up(self) -> None:
        """Starts the broker, and again whenever it has ended."""
        loop = self._world.loop
        while True:
            process, host = self.machine.boot()
            self._world.trace.note(f"start {process.name}")
            loop.start(process, self._serve(process, host))
            await asyncio.shield(self._down)
            self._node = None
            self._down = loop.create_future()
            await asyncio.sleep(self._pause_s)

    async def _serve(self, process: Process, env: Environment) -> None:
        """The broker's main function."""
        node = Node(self._config, env)
        try:
            await node.start()
        except Exception as error:
            if not process.is_alive:
                return
            if self._rot.has_begun and isinstance(error, _REFUSALS):
                self._world.trace.sometimes("damage was found at a start")
                self.refusal = error
            elif self._options.may_refuse_start(error):
                self._world.trace.sometimes("a start was refused for want of a quorum")
            elif not is_disk_error(str(error)):
                self._world.trace.violation(f"{self.name} does not start: {error!r}")
            elif self.machine.room_bytes is not None:
                self._world.trace.sometimes("a start was refused by a full disk")
                self._start_refused.set()
            self._end_after_error()
            return
        if self.machine.disk_failed:
            self._world.trace.sometimes("the broker stopped after a disk error")
            self._end_after_error()
            return
        if self.machine.room_bytes is not None:
            self._world.trace.sometimes("a broker started on a full disk")
        self.refusal = None
        self._node = node
        node.broker.failed.add_done_callback(self._on_failed)
        self._is_up.set()

    @property
    def node(self) -> Node | None:
        """The broker that runs, None while none has started."""
        return self._node

    @property
    def is_up(self) -> bool:
        """Whether the broker has started and not ended."""
        return self._is_up.is_set()

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

    def kill(self, *, pause_s: float) -> None:
        """kill -9."""
        if self.machine.process is not None:
            self._world.trace.sometimes("the broker was killed")
            self.machine.kill()
            self._ended(pause_s)

    def cut_power(self, *, pause_s: float) -> None:
        """The machine loses its power."""
        if self.machine.process is not None:
            self.machine.cut_power()
            self._on_power_cut(self)
            self._ended(pause_s)

    def cut_power_soon(self, operations: int, *, pause_s: float) -> None:
        """The same, in the midst of a disk operation of this life, if there are so many."""
        if self.machine.process is not None:
            self.machine.cut_power_at(operations, lambda: self.cut_power(pause_s=pause_s))

    async def pause(self, pause_s: float, *, is_killed: bool) -> None:
        """SIGSTOP, and after a while SIGCONT, or SIGKILL."""
        process = self.machine.process
        if process is not None:
            self._world.trace.sometimes("a broker was paused")
            process.pause()
            await asyncio.sleep(pause_s)
            if is_killed:
                self.kill(pause_s=_RETRY_S)
            else:
                self._world.loop.resume(process)

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

    async def restart_in_order(self) -> None:
        """Stops the broker as SIGTERM does; returns when it is up again."""
        process, node = self.machine.process, self._node
        if node is not None and process is not None:
            stopping = self._world.loop.start(process, node.stop())
            down = self._down
            done, _ = await asyncio.wait(
                [stopping, down], timeout=STOP_S_MAX, return_when=asyncio.FIRST_COMPLETED
            )
            if stopping in done:
                self._world.trace.sometimes("the broker stopped in order")
            if not done:
                self._world.trace.violation(f"{self.name} did not stop within {STOP_S_MAX} s")
            if self.machine.process is process:
                self.machine.kill()
                self._ended(0.1)
        await self.until_up()

    async def until_up(self) -> None:
        """Returns when the broker is up, or cannot come up any more."""
        try:
            async with asyncio.timeout(START_S_MAX):
                await self._is_up.wait()
        except TimeoutError:
            if self.refusal is None:
                self._world.trace.violation(f"{self.name} is not up within {START_S_MAX} s")

    async def heal(self) -> None:
        """The disk has room and its syncs succeed; returns when the broker is up."""
        self.machine.repair()
        await self.until_up()

    def _on_failed(self, failed: asyncio.Future[None]) -> None:
        error = failed.exception()
        causes = f"{error} {error.__cause__}" if error is not None else ""
        if not self._rot.has_begun and not is_disk_error(causes):
            self._world.trace.violation(f"{self.name} gave up: {error!r}")
        self._world.trace.sometimes("the broker stopped after a disk error")
        self._end_after_error()

    def _end_after_error(self) -> None:
        if self._rng.random() < 0.5:
            # The page cache is rid of what the failed sync did not write.
            self.cut_power(pause_s=_RETRY_S)
        else:
            # It is still there, marked clean, for the next process to read.
            self.kill(pause_s=_RETRY_S)

    def _ended(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._is_up.clear()
        self._down.set_result(None)


async def _ignoring_refusals(
    node: Node, decide: Callable[[ClusterImage], list[PartitionChangeRecord]]
) -> None:
    """A change that a full disk or a stop refuses is none."""
    with suppress(ApiError):
        await node.broker.active.change(decide)
