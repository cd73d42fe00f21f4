"""Whoever starts the broker again: one broker on one machine, and everything that ends it.

Owns the broker's lives. A life ends by a kill, a power cut, an orderly stop, or by the broker
itself after a disk error; the next begins after a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millrace_server.api_error import ApiError
from millrace_server.config import BrokerConfig
from millrace_server.environment.seams import Environment
from millrace_server.log import CorruptLog
from millrace_server.metadata.records import UnreadableMetadata
from millrace_server.node import Node
from tests.sim.host import World
from tests.sim.loop import Process
from tests.sim.machine import Machine
from tests.sim.rot import Rot
from tests.sim.situations import is_disk_error

ADDRESS = "127.0.0.1:9092"
STOP_S_MAX = 30.0
START_S_MAX = 30.0
_RETRY_S = 0.5
_REFUSALS = (OSError, CorruptLog, UnreadableMetadata, ApiError)
"""What a broker may say of data that it cannot start with."""


class Supervisor:
    """Keeps one broker up while `keep_up` runs.

    `refusal` is why it does not start any more, after damage to what it must read.
    """

    def __init__(
        self, world: World, config: BrokerConfig, *, rot: Rot, on_power_cut: Callable[[], None]
    ) -> None:
        self.machine = Machine(world, "broker")
        self.refusal: Exception | None = None
        self._world = world
        self._config = config
        self._rot = rot
        self._on_power_cut = on_power_cut
        self._rng = world.rng.fork("supervisor")
        self._node: Node | None = None
        self._pause_s = 0.0
        self._down: asyncio.Future[None] = world.loop.create_future()
        self._is_up = asyncio.Event()

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
            elif not is_disk_error(str(error)):
                self._world.trace.violation(f"the broker does not start: {error!r}")
            self._end_after_error()
            return
        if self.machine.disk_failed:
            self._end_after_error()
            return
        self.refusal = None
        self._node = node
        node.broker.failed.add_done_callback(lambda _: self._end_after_error())
        self._is_up.set()

    @property
    def is_up(self) -> bool:
        """Whether the broker has started and not ended."""
        return self._is_up.is_set()

    def log_bytes(self, where: tuple[str, int]) -> int:
        """The size of a partition's batches; the broker must be up."""
        assert self._node is not None
        return self._node.broker.partitions.get(*where).log.size_bytes

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
            self._on_power_cut()
            self._ended(pause_s)

    def cut_power_soon(self, operations: int, *, pause_s: float) -> None:
        """The same, in the midst of a disk operation of this life, if there are so many."""
        if self.machine.process is not None:
            self.machine.cut_power_at(operations, lambda: self.cut_power(pause_s=pause_s))

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
                self._world.trace.violation(f"the broker did not stop within {STOP_S_MAX} s")
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
                self._world.trace.violation(f"the broker is not up within {START_S_MAX} s")

    async def heal(self) -> None:
        """The disk has room and its syncs succeed; a broker that met a full one starts again."""
        self.machine.repair()
        await self.restart_in_order()

    def _end_after_error(self) -> None:
        self._world.trace.sometimes("the broker stopped after a disk error")
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
