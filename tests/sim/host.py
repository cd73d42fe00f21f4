"""The doors of `host.Host`, and the world behind them: machines, their disks, one clock.

Owns what a run is made of: the seed, the trace, the loop, the network and the machines. Knows
nothing of what runs on them but that a broker is a `Node`.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from millrace_server.host import Disk, Host
from millrace_server.log import PartitionLog
from millrace_server.net.listening import OsNet
from tests.sim.disk import FaultyDisk
from tests.sim.loop import CURRENT, Process, SimLoop
from tests.sim.network import SimNetwork

T = TypeVar("T")
EPOCH_MS = 1_700_000_000_000
_FIRST_LOG = "/00000000000000000000.log"
_ROOM_OPERATIONS = frozenset({"write", "create", "preallocate", "make directory"})


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


class Trace:
    """What happened, in order, as lines for people and a digest for comparing two runs."""

    def __init__(self, now: Callable[[], float], *, show: Callable[[str], object] | None) -> None:
        self._now = now
        self._show = show
        self._digest = hashlib.blake2b(digest_size=12)
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def note(self, line: str) -> None:
        """Something happened."""
        text = f"{self._now():12.6f} {line}"
        self._digest.update(text.encode())
        if self._show is not None:
            self._show(text)

    def sometimes(self, what: str, count: int = 1) -> None:
        """Something happened that a set of runs must meet now and then."""
        self.counts[what] += count

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

    def __init__(self, loop: SimLoop, rng: Rng, *, blocking_max_s: float) -> None:
        self._loop = loop
        self._rng = rng
        self._blocking_max_s = blocking_max_s

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
        self._loop.call_later(self._rng.random() * self._blocking_max_s * slow, call, *args)


class Machine:
    """A computer with a disk, on which one process runs at a time."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.is_full = False
        self.next_sync_fails = False
        self.sync_failed = False
        """Since the process was started."""
        self.process: Process | None = None
        self._world = world
        self._rng = world.rng.fork(name)
        self._starts = 0
        self._use(FaultyDisk())

    def boot(self) -> tuple[Process, Host]:
        """Starts a process, with the doors it gets."""
        world = self._world
        self._starts += 1
        self.sync_failed = False
        self.process = Process(self.name, f"{self.name}.{self._starts}")
        world.processes.append(self.process)
        world.network.machine_is_up(self.name)
        rng = self._rng.fork(str(self._starts))
        spawn = SimSpawn(world.loop, rng.fork("spawn"), blocking_max_s=world.blocking_max_s)
        disk: Disk = self.disk
        return self.process, Host(world.clock, disk, OsNet(), rng.fork("broker"), spawn)

    def kill(self) -> None:
        """Ends the process; what it wrote stays in the page cache."""
        self._end(machine_too=False)
        self._use(self.disk.after_kill())

    def cut_power(self) -> None:
        """Ends the process, and what was not synced is lost, or some of it."""
        if self.disk.has_unsynced:
            self._world.trace.sometimes("a power cut met unsynced data")
        self._end(machine_too=True)
        self._use(self.disk.after_power_cut(self._rng))

    def cut_power_at(self, operations: int, then: Callable[[], None]) -> None:
        """Cuts the power in the midst of a disk operation that is so many away."""
        self.disk.crash_at = self.disk.operations + operations
        self.disk.on_crash = then

    def _end(self, *, machine_too: bool) -> None:
        self.disk.is_dead = True
        process, self.process = self.process, None
        if process is not None:
            process.is_alive = False
            self._world.network.process_died(process, machine_too=machine_too)

    def _use(self, disk: FaultyDisk) -> None:
        self.disk = disk
        disk.judge = self._judge

    def _judge(self, operation: str, path: str) -> int | None:
        failure: int | None = None
        if self.is_full and operation in _ROOM_OPERATIONS:
            self._world.trace.sometimes("a full disk refused something")
            failure = errno.ENOSPC
        elif self.next_sync_fails and operation == "sync":
            self.next_sync_fails, self.sync_failed = False, True
            self._world.trace.sometimes("a sync failed")
            failure = errno.EIO
        elif operation == "create" and path.endswith(".log") and not path.endswith(_FIRST_LOG):
            self._world.trace.sometimes("a segment was rolled")
        self._world.trace.note(f"{self.name} disk {operation} {path} {failure or ''}")
        return failure


class World:
    """Everything of one run, under one seed. Use as a context manager."""

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

    def client(self, name: str) -> Process:
        """A process on a machine of its own that only connects to others."""
        process = Process(name, name)
        self.processes.append(process)
        return process

    def machine(self, name: str) -> Machine:
        """A computer with an empty disk, not started."""
        return Machine(self, name)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the world until `work`, which belongs to no process, is done."""
        with client_time(self.clock), broker_lines(self.trace):
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


@contextmanager
def broker_lines(trace: Trace) -> Iterator[None]:
    """The broker's log lines go to the trace, and repeated batches are counted."""
    logger = logging.getLogger("millrace")
    lines = _Lines(trace)
    append = PartitionLog.append
    level, propagate = logger.level, logger.propagate

    def counted(self: PartitionLog, *args: Any, **options: Any) -> Any:
        appended = append(self, *args, **options)
        if appended.duplicate:
            trace.sometimes("the broker recognised a duplicate")
        return appended

    PartitionLog.append = counted  # type: ignore[method-assign]
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        PartitionLog.append = append  # type: ignore[method-assign]
        logger.removeHandler(lines)
        logger.setLevel(level)
        logger.propagate = propagate


class _Lines(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT.get()
        fields = record.msg if isinstance(record.msg, dict) else {"event": record.getMessage()}
        event = fields["event"]
        self._trace.note(f"{process.name if process else '-'} logs {fields}")
        if event == "partition recovered":
            self._trace.sometimes("recovery read a log")
            if fields["cut_bytes"]:
                self._trace.sometimes("recovery cut a torn tail")
        elif event == "partition offline":
            if is_disk_error(str(fields)):
                self._trace.sometimes("a partition was offline after a disk error")
            else:
                self._trace.violation(f"{fields}")


def is_disk_error(text: str) -> bool:
    """Whether a sentence is about an error that the simulated disk made."""
    return any(os.strerror(number) in text for number in (errno.ENOSPC, errno.EIO))
