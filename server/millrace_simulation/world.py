"""The world of a run: chance, the event loop, the network, the clocks of machines, the processes.

Owns what a run is made of, and the seam `Spawn` of its machines. Knows nothing of what runs in
them.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from millrace_simulation.clock import NO_SKEW, MachineClock, Skew
from millrace_simulation.loop import Process, SimLoop
from millrace_simulation.network import SimNetwork
from millrace_simulation.outside import simulated_outside
from millrace_simulation.trace import Trace

T = TypeVar("T")


class Rng(random.Random):
    """A source of chance with children: each subsystem has its own, so that one more draw in one
    does not change the others."""

    def __init__(self, label: str) -> None:
        # A string is seeded through SHA-512, an object through its hash, which differs by run.
        super().__init__(label)
        self.label = label

    def fork(self, label: str) -> Rng:
        """The child of that name."""
        return Rng(f"{self.label}/{label}")


class SimSpawn:
    """See `seams.Spawn`. A blocking call does its work at some later moment, all at once, and its
    result arrives at another: the loop goes on before and between."""

    def __init__(self, world: World, rng: Rng) -> None:
        self._world = world
        self._loop = world.loop
        self._rng = rng

    def task(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return self._loop.create_task(work, name=name)

    def blocking(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future = self._loop.create_future()

        def run() -> None:
            try:
                result = work(*args)
            except Exception as error:
                self._later(_settle, future.set_exception, error)
            else:
                self._later(_settle, future.set_result, result)

        def _settle(settle: Callable[[Any], None], value: Any) -> None:
            if not future.done():
                settle(value)

        self._later(run)
        return future

    def _later(self, call: Callable[..., None], *args: Any) -> None:
        # Most calls are short; one in twenty waits for a disk that is busy.
        slow = 20 if self._rng.random() < 0.05 else 1
        delay_s = self._rng.random() * self._world.blocking_max_s * slow
        self._loop.call_later(delay_s, call, *args)


class World:
    """Everything of one run, under one seed. `blocking_max_s` may be changed at any time."""

    def __init__(
        self,
        rng: Rng,
        *,
        latency_max_s: float,
        blocking_max_s: float,
        window_bytes: int,
        segment_bytes: int,
        turns_max: int,
        skew: Skew = NO_SKEW,
        show: Callable[[str], object] | None = None,
    ) -> None:
        self.rng = rng
        self.blocking_max_s = blocking_max_s
        self.loop = SimLoop(rng.fork("loop"), on_unhandled=self._unhandled, turns_max=turns_max)
        self.trace = Trace(self.loop, show=show)
        self.network = SimNetwork(
            self.loop,
            rng.fork("net"),
            note=self.trace.note,
            note_arrival=self.trace.note_arrival,
            sometimes=self.trace.sometimes,
            latency_max_s=latency_max_s,
            window_bytes=window_bytes,
            segment_bytes=segment_bytes,
        )
        self.loop.network = self.network
        self.processes: list[Process] = []
        self._skew = skew
        self._clocks: dict[str, MachineClock] = {}

    def now_s(self) -> float:
        """The true time, which no machine knows."""
        return self.loop.now_s

    def clock(self, machine: str) -> MachineClock:
        """The clock of a machine."""
        clock = self._clocks.get(machine)
        if clock is None:
            rng = self.rng.fork(f"clock/{machine}")
            clock = self._clocks[machine] = MachineClock(self.loop, rng, self._skew)
        return clock

    def process(self, machine: str, name: str) -> Process:
        """Starts a process; one without a disk, that only connects to others, needs no more."""
        process = Process(machine, name, self.clock(machine))
        self.processes.append(process)
        return process

    def start_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts what belongs to no process, from within one as well."""
        return self.loop.create_task(work, context=contextvars.Context())

    def end_client(self, process: Process) -> None:
        """The process is gone; its kernel closes what it had open."""
        process.end()
        self.network.process_died(process, machine_too=False)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the world until `work`, which belongs to no process, is done."""
        with simulated_outside(self.rng.fork("outside")):
            return self.loop.run_until_complete(work)

    async def within(self, what: str, task: asyncio.Task[None], limit_s: float) -> None:
        """Waits for a task; it is a violation if the task takes too long, or fails."""
        done, _ = await asyncio.wait([task], timeout=limit_s)
        if not done:
            self.trace.violation(f"{what}: not done within {limit_s} s")
        elif (error := task.exception()) is not None:
            self.trace.violation(f"{what}: {error!r}")

    def close(self) -> None:
        """Takes everything apart; nothing of it may be used again."""
        for process in self.processes:
            process.end()
        for process in self.processes:
            process.discard()
        self.loop.close()

    def _unhandled(self, sentence: str) -> None:
        self.trace.violation(f"unhandled: {sentence}")
