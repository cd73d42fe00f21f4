"""Runs a target over many inputs and reports crashes, hangs and times.

Owns the measures: the time of each input, with the machine's noise taken out, and the growth of
the process's peak of memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.targets import Target

SLOW_MS = 50
"""An input of at most 4 KiB that takes longer, however often it is tried, is a find."""
TRIES = 3
"""How often an input that seems slow is run again; its time is the shortest, of the processor."""
GROWTH_BYTES_MAX = 64 << 20
"""How much the peak of memory may grow in a run: outputs are bounded to a mebibyte."""
FINDS_MAX = 5
"""A run ends early after so many inputs that crash, or that are slow."""


@dataclass(slots=True)
class Outcome:
    """What a run of one target showed."""

    inputs: int = 0
    crashes: list[tuple[bytes, Exception]] = field(default_factory=list)
    hangs: list[bytes] = field(default_factory=list)
    """Inputs above `SLOW_MS` each time."""
    slowest_ms: float = 0.0
    slowest: bytes = b""
    peak_bytes: int = 0
    growth_bytes: int = 0
    seconds: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether enough was found."""
        return max(len(self.crashes), len(self.hangs)) >= FINDS_MAX


class Gauge:
    """Gives inputs to a target and notes what they cost; begins by running the right ones, since
    what is imported and cached at first use is not what an input costs."""

    def __init__(self, target: Target) -> None:
        self.outcome = Outcome()
        self._target = target
        for data in target.seeds:
            target.run(data)
        # From here on VmHWM is the peak since now.
        Path("/proc/self/clear_refs").write_text("5")
        self._before_bytes = _peak_bytes()
        self._began = time.perf_counter()

    def run(self, data: bytes) -> None:
        """One input. Whatever it raises is noted."""
        outcome = self.outcome
        outcome.inputs += 1
        try:
            if self._took_ms(data, time.perf_counter) <= outcome.slowest_ms:
                return
            # Other processes may take the time away, but they do not add to the processor's.
            took_ms = min(self._took_ms(data, time.process_time) for _ in range(TRIES))
        except Exception as error:
            outcome.crashes.append((data, error))
            return
        if took_ms > outcome.slowest_ms:
            outcome.slowest_ms, outcome.slowest = took_ms, data
        if took_ms > SLOW_MS:
            outcome.hangs.append(data)

    def read(self) -> Outcome:
        """What it was so far."""
        self.outcome.seconds = time.perf_counter() - self._began
        self.outcome.peak_bytes = _peak_bytes()
        self.outcome.growth_bytes = self.outcome.peak_bytes - self._before_bytes
        return self.outcome

    def _took_ms(self, data: bytes, clock: Callable[[], float]) -> float:
        started = clock()
        self._target.run(data)
        return (clock() - started) * 1e3


def run(target: Target, inputs: Iterable[bytes], *, seconds_max: float = float("inf")) -> Outcome:
    """Gives inputs to the target, until they or the time are used up, or enough was found."""
    gauge = Gauge(target)
    ends = time.perf_counter() + seconds_max
    for data in inputs:
        gauge.run(data)
        if gauge.outcome.has_ended or time.perf_counter() > ends:
            break
    return gauge.read()


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise LookupError("/proc tells no VmHWM of this process")
