"""One simulated broker: it is started again whatever ended it.

Owns the broker's lives. A life ends by a kill, a power cut, an orderly stop, or by the broker
itself after a disk error; the next begins after a pause.
"""

from __future__ import annotations

import asyncio
import errno
import os

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.config import BrokerConfig
from millrace_server.environment.seams import Environment
from millrace_server.node import Node
from millrace_simulation.loop import Process
from millrace_simulation.machine import Machine
from millrace_simulation.world import World

STOP_S_MAX = 30.0
START_S_MAX = 30.0
RETRY_S = 0.5
_NO_QUORUM = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.DISK_FULL,
)
"""Why a broker may not start while there is no controller, none that it reaches, or one without
room on its disk."""


def is_disk_error(text: str) -> bool:
    """Whether a sentence is about an error that the simulated disk made."""
    return any(os.strerror(number) in text for number in (errno.ENOSPC, errno.EIO))


def is_want_of_quorum(error: Exception) -> bool:
    """Whether a broker did not start because there is no controller that takes its registration."""
    return isinstance(error, ApiError) and error.code in _NO_QUORUM


class SimulatedBroker:
    """Keeps one broker up while `keep_up` runs. The client port is in `config.listen`."""

    def __init__(self, world: World, number: int, config: BrokerConfig) -> None:
        self.name = f"broker{number}"
        self.address = config.listen
        self.machine = Machine(world, self.name, config.listen.rpartition(":")[0])
        self._world = world
        self._config = config
        self._rng = world.rng.fork(f"supervisor {number}")
        self._node: Node | None = None
        self._pause_s = 0.0
        self._down: asyncio.Future[None] = world.loop.create_future()
        self._is_up = asyncio.Event()

    @property
    def node(self) -> Node | None:
        """The broker that runs, None while none has started."""
        return self._node

    @property
    def is_up(self) -> bool:
        """Whether the broker has started and not ended."""
        return self._is_up.is_set()

    async def keep_up(self) -> None:
        """Starts the broker, and again whenever it has ended."""
        loop = self._world.loop
        while True:
            process, env = self.machine.boot()
            self._world.trace.note(f"start {process.name}")
            loop.start(process, self._serve(process, env))
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
            if process.is_alive:
                self._start_failed(error)
                self._end_after_error()
            return
        if self.machine.disk_failed:
            self._world.trace.sometimes("the broker stopped after a disk error")
            self._end_after_error()
            return
        if self.machine.room_bytes is not None:
            self._world.trace.sometimes("a broker started on a full disk")
        self._started()
        self._node = node
        node.broker.failed.add_done_callback(self._on_failed)
        self._is_up.set()

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
                self.kill(pause_s=RETRY_S)
            else:
                self._world.loop.resume(process)

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
        """Returns when the broker is up."""
        try:
            async with asyncio.timeout(START_S_MAX):
                await self._is_up.wait()
        except TimeoutError:
            self._not_up()

    async def heal(self) -> None:
        """The disk has room and its syncs succeed; returns when the broker is up."""
        self.machine.repair()
        await self.until_up()

    # What it may say, and what is a bug

    def _started(self) -> None:
        """It is about to be up."""

    def _may_refuse_start(self, error: Exception) -> bool:
        """Whether a broker may give this as the reason why it does not start, and be right."""
        return is_want_of_quorum(error)

    def _start_failed(self, error: Exception) -> None:
        if self._may_refuse_start(error):
            self._world.trace.sometimes("a start was refused for want of a quorum")
        elif not is_disk_error(str(error)):
            self._world.trace.violation(f"{self.name} does not start: {error!r}")
        elif self.machine.room_bytes is not None:
            self._world.trace.sometimes("a start was refused by a full disk")

    def _may_give_up(self, causes: str) -> bool:
        return is_disk_error(causes)

    def _not_up(self) -> None:
        self._world.trace.violation(f"{self.name} is not up within {START_S_MAX} s")

    def _on_failed(self, failed: asyncio.Future[None]) -> None:
        error = failed.exception()
        causes = f"{error} {error.__cause__}" if error is not None else ""
        if not self._may_give_up(causes):
            self._world.trace.violation(f"{self.name} gave up: {error!r}")
        self._world.trace.sometimes("the broker stopped after a disk error")
        self._end_after_error()

    def _end_after_error(self) -> None:
        if self._rng.random() < 0.5:
            # The page cache is rid of what the failed sync did not write.
            self.cut_power(pause_s=RETRY_S)
        else:
            # It is still there, marked clean, for the next process to read.
            self.kill(pause_s=RETRY_S)

    def _ended(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._is_up.clear()
        self._down.set_result(None)
