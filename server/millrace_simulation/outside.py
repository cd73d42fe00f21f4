"""The outside of a simulated process: its time, its chance, and what it cannot have.

While a run lasts, `time` and `random` answer simulated processes from the run, whatever code asks:
brokers, clients, and the user's own. Threads, real sockets, other programs and `time.sleep` would
make a run depend on the machine below it; they are refused. Code that runs in no simulated process
is not concerned.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millrace_simulation.loop import CURRENT, NotSimulated, Process

_NETWORK = "it has a network of its own: asyncio connects to the addresses of simulated brokers"
_PROGRAMS = "it has one program, the one that is simulated"
_REFUSED = {
    "socket.connect": _NETWORK,
    "socket.bind": _NETWORK,
    "socket.sendto": _NETWORK,
    "socket.getaddrinfo": _NETWORK,
    "subprocess.Popen": _PROGRAMS,
    "os.exec": _PROGRAMS,
    "os.fork": _PROGRAMS,
    "os.posix_spawn": _PROGRAMS,
    "os.system": _PROGRAMS,
}
"""Events of `sys.audit`, and what a simulation has instead."""
_SLEEP = "time.sleep is not simulated: time would stand still; use asyncio.sleep"
_THREAD = "a thread is not simulated: a simulated process has one, with asyncio's tasks in it"
_is_hooked = False


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event in _REFUSED and CURRENT.get() is not None:
        raise NotSimulated(f"{event} is not simulated; {_REFUSED[event]}")


def _times() -> dict[str, Callable[[Process], float]]:
    """What the functions of `time` answer a process: the clocks of its machine."""

    def wall_ns(process: Process) -> int:
        return process.clock.wall_ms() * 1_000_000

    def monotonic_ns(process: Process) -> int:
        return process.clock.monotonic_ns()

    return {
        "time_ns": wall_ns,
        "monotonic_ns": monotonic_ns,
        "perf_counter_ns": monotonic_ns,
        "time": lambda process: wall_ns(process) / 1e9,
        "monotonic": lambda process: monotonic_ns(process) / 1e9,
        "perf_counter": lambda process: monotonic_ns(process) / 1e9,
    }


def _or_real(
    real: Callable[[], float], simulated: Callable[[Process], float]
) -> Callable[[], float]:
    def read() -> float:
        process = CURRENT.get()
        return real() if process is None else simulated(process)

    return read


def _or_refused(real: Callable[..., None], sentence: str) -> Callable[..., None]:
    def call(*args: Any) -> None:
        if CURRENT.get() is not None:
            raise NotSimulated(sentence)
        real(*args)

    return call


@contextmanager
def simulated_outside(rng: random.Random) -> Iterator[None]:
    """While it lasts, simulated processes have their own time and chance, and nothing else."""
    global _is_hooked
    if not _is_hooked:
        # It stays: an audit hook cannot be removed. Without a simulated process it does nothing.
        sys.addaudithook(_refuse)
        _is_hooked = True
    urandom, unseeded, state = os.urandom, random.Random, random.getstate()

    class SeededRandom(random.Random):
        """Without a seed of its own it takes one from the run."""

        def __init__(self, x: Any = None) -> None:
            is_ours = x is None and CURRENT.get() is not None
            super().__init__(rng.getrandbits(64) if is_ours else x)

    def seeded_urandom(size: int, /) -> bytes:
        return urandom(size) if CURRENT.get() is None else rng.randbytes(size)

    sleep, start = time.sleep, threading.Thread.start
    times = {name: getattr(time, name) for name in _times()}
    for name, simulated in _times().items():
        setattr(time, name, _or_real(times[name], simulated))
    time.sleep = _or_refused(sleep, _SLEEP)
    threading.Thread.start = _or_refused(start, _THREAD)  # type: ignore[method-assign]
    random.seed(rng.getrandbits(64))
    random.Random = SeededRandom  # type: ignore[misc]
    os.urandom = seeded_urandom
    try:
        yield
    finally:
        time.sleep, threading.Thread.start = sleep, start  # type: ignore[method-assign]
        os.urandom = urandom
        random.Random = unseeded  # type: ignore[misc]
        random.setstate(state)
        for name, real in times.items():
            setattr(time, name, real)


@contextmanager
def no_collections() -> Iterator[None]:
    """Finalizers would run when the collector happens to, and not at the same place in each run.

    Coroutines of processes that were killed are collected at the end; what they say of that is
    lost.
    """
    gc.disable()
    try:
        yield
    finally:
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            # All that the run has left is young: nothing was collected since it began.
            gc.collect(0)
        finally:
            sys.unraisablehook = hook
            gc.enable()
