"""The doors of `host.Host`, and the world behind them: a clock, a network, a source of chance.

Owns what a run is made of: the seed, the trace, the loop, the network and the processes. Knows
nothing of what runs in them.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.sim.loop import Process, SimLoop
from tests.sim.network import SimNetwork

T = TypeVar("T")
EPOCH_MS = 1_700_000_000_000


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


_LINES_HASHED = 256
"""At once: each line by itself costs more."""


class Trace:
    """What happened, in order, as lines for people and a digest for comparing two runs."""

    def __init__(self, now: Callable[[], float], *, show: Callable[[str], object] | None) -> None:
        self._now = now
        self._show = show
        self._hash = hashlib.blake2b(digest_size=12)
        self._unhashed: list[str] = []
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    @property
    def digest(self) -> str:
        self._take_in()
        return self._hash.hexdigest()

    def note(self, line: str) -> None:
        """Something happened."""
        text = f"{self._now():12.6f} {line}"
        self._unhashed.append(text)
        if len(self._unhashed) == _LINES_HASHED:
            self._take_in()
        if self._show is not None:
            self._show(text)

    def _take_in(self) -> None:
        self._hash.update("".join(self._unhashed).encode())
        self._unhashed.clear()

    def sometimes(self, what: str, count: int = 1) -> None:
        """Something happened that a set of runs must meet now and then."""
        self.counts[what] += count

    def told(self, name: str, error: Exception) -> None:
        """A client was told of an error that it can live with."""
        self.note(f"{name} got {type(error).__name__}: {error}")
        self.sometimes("a client was told of an error")

    def violation(self, sentence: str) -> None:
        """Something happened that must not; said once, however often it did."""
        if sentence not in self.violations:
            self.violations.append(sentence)
        self.note(f"VIOLATION {sentence}")


class SimClock:
    """See `host.Clock`; also what client code has for the `time` module."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return EPOCH_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def time_ns(self) -> int:
        return self.wall_ms() * 1_000_000

    def monotonic_ns(self) -> int:
        return self.monotonic_ms() * 1_000_000


class SimSpawn:
    """See `host.Spawn`. A blocking call does its work at some later moment, all at once, and its
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
        show: Callable[[str], object] | None = None,
    ) -> None:
        self.rng = rng
        self.blocking_max_s = blocking_max_s
        self.loop = SimLoop(rng.fork("loop"), on_unhandled=self._unhandled, turns_max=turns_max)
        self.trace = Trace(self.loop.time, show=show)
        self.clock = SimClock(self.loop)
        self.network = SimNetwork(
            self.loop,
            rng.fork("net"),
            note=self.trace.note,
            sometimes=self.trace.sometimes,
            latency_max_s=latency_max_s,
            window_bytes=window_bytes,
            segment_bytes=segment_bytes,
        )
        self.loop.network = self.network
        self.processes: list[Process] = []

    def client(self, machine: str, name: str) -> Process:
        """A process without a disk, that only connects to others."""
        process = Process(machine, name)
        self.processes.append(process)
        return process

    def end_client(self, process: Process) -> None:
        """The process is gone; its kernel closes what it had open."""
        process.is_alive = False
        self.network.process_died(process, machine_too=False)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the world until `work`, which belongs to no process, is done."""
        with client_time(self.clock):
            return self.loop.run_until_complete(work)

    def close(self) -> None:
        """Takes everything apart; nothing of it may be used again."""
        for process in self.processes:
            process.is_alive = False
        for process in self.processes:
            process.discard()
        self.loop.close()

    def _unhandled(self, sentence: str) -> None:
        self.trace.violation(f"unhandled: {sentence}")


@contextmanager
def client_time(clock: SimClock) -> Iterator[None]:
    """Clients read the `time` module, the one door they have without a handle."""
    modules = [
        module.__dict__
        for name, module in sorted(sys.modules.items())
        if name.startswith("millrace.") and module.__dict__.get("time") is time
    ]
    for module in modules:
        module["time"] = clock
    try:
        yield
    finally:
        for module in modules:
            module["time"] = time
