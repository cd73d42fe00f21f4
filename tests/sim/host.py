"""The seams of a simulated machine, and the world behind them: clocks, a network, chance.

Owns what a run is made of: the seed, the trace, the loop, the network, the clocks of the machines
and the processes. Knows nothing of what runs in them.
"""

from __future__ import annotations

import asyncio
import hashlib
import marshal
import random
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from millrace._cluster import port_probe
from tests.sim.clock import NO_SKEW, MachineClock, Skew, TrueTime
from tests.sim.loop import Process, SimLoop, running_process
from tests.sim.network import SimNetwork
from tests.sim.transport import Mark

T = TypeVar("T")
TLS_CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(506)
"""As long as what `ssl` sends first, with zeros in the place of its random bytes."""


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


_LINES_HASHED = 1024
"""At once: each line by itself costs more."""


class Trace:
    """What happened, in order, as lines for people and a digest for comparing two runs."""

    def __init__(self, true: TrueTime, *, show: Callable[[str], object] | None) -> None:
        self._true = true
        self._show = show
        self._hash = hashlib.blake2b(digest_size=12)
        self._unhashed: list[object] = []
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    @property
    def digest(self) -> str:
        self._take_in()
        return self._hash.hexdigest()

    def note(self, line: str) -> None:
        """Something happened."""
        unhashed = self._unhashed
        unhashed += (self._true.now_s, line)
        if len(unhashed) >= _LINES_HASHED:
            self._take_in()
        if self._show is not None:
            self._show(f"{self._true.now_s:12.6f} {line}")

    def note_arrival(self, end: int, source: str, target: str, item: bytes | Mark) -> None:
        """Bytes, or the end of them, came through the network."""
        unhashed = self._unhashed
        if isinstance(item, Mark):
            unhashed += (self._true.now_s, end, item.name)
        else:
            unhashed += (self._true.now_s, end, len(item))
            self._hash.update(item)
        if len(unhashed) >= _LINES_HASHED:
            self._take_in()
        if self._show is not None:
            what = item.name if isinstance(item, Mark) else f"{len(item)} {zlib.crc32(item):08x}"
            self._show(f"{self._true.now_s:12.6f} #{end} {source} > {target} {what}")

    def _take_in(self) -> None:
        # Later versions mark what is interned or referenced twice, which differs by run.
        self._hash.update(marshal.dumps(self._unhashed, 2))
        self._unhashed.clear()

    def sometimes(self, what: str, count: int = 1) -> None:
        """Something happened that a set of runs must meet now and then."""
        self.counts[what] += count

    def told(self, name: str, error: Exception) -> None:
        """A client was told of an error that it can live with."""
        self.note(f"{name} got {type(error).__name__}: {error}")
        self.sometimes("a client was told of an error")

    def violation(self, sentence: str) -> None:
        """Something happened that must not; kept once, however often it did."""
        if sentence not in self.violations:
            self.violations.append(sentence)
        self.note(f"VIOLATION {sentence}")


class RunningClock:
    """What client code has for the `time` module: the clock of the machine on which it runs."""

    def time_ns(self) -> int:
        return running_process().clock.wall_ms() * 1_000_000

    def monotonic_ns(self) -> int:
        return running_process().clock.monotonic_ns()


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

    def end_client(self, process: Process) -> None:
        """The process is gone; its kernel closes what it had open."""
        process.end()
        self.network.process_died(process, machine_too=False)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the world until `work`, which belongs to no process, is done."""
        with client_doors():
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


@contextmanager
def client_doors() -> Iterator[None]:
    """The doors that clients have without a handle: the `time` module, and chance within TLS."""
    clock = RunningClock()
    modules = [
        module.__dict__
        for name, module in sorted(sys.modules.items())
        if name.startswith("millrace.") and module.__dict__.get("time") is time
    ]
    for module in modules:
        module["time"] = clock
    hello, port_probe._client_hello = port_probe._client_hello, lambda: TLS_CLIENT_HELLO
    try:
        yield
    finally:
        port_probe._client_hello = hello
        for module in modules:
            module["time"] = time
