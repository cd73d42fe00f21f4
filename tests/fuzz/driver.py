"""Runs a target over many inputs and says what it found and what it cost.

Owns the measures: the time of each input, and the growth of the process's peak of memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.targets import Target

SLOW_MS = 50
"""An input of at most 4 KiB that takes longer is worth a look."""
GROWTH_BYTES_MAX = 64 << 20
"""How much the peak of memory may grow in a run: outputs are bounded to a mebibyte."""


@dataclass(slots=True)
class Outcome:
    """What a run of one target showed."""

    inputs: int = 0
    crashes: list[tuple[bytes, Exception]] = field(default_factory=list)
    slowest_ms: float = 0.0
    slowest: bytes = b""
    slow: int = 0
    """Inputs above `SLOW_MS`, by the clock of a machine that others use too."""
    growth_bytes: int = 0
    seconds: float = 0.0


def run(target: Target, inputs: Iterable[bytes], *, crashes_max: int = 5) -> Outcome:
    """Gives every input to the target; stops early after `crashes_max` finds."""
    outcome = Outcome()
    for data in target.seeds:
        # What is imported and cached at first use is not what an input costs.
        target.run(data)
    Path("/proc/self/clear_refs").write_text("5")
    before_bytes = _peak_bytes()
    began = time.perf_counter()
    for data in inputs:
        started = time.perf_counter()
        try:
            target.run(data)
        except Exception as error:
            outcome.crashes.append((data, error))
            if len(outcome.crashes) == crashes_max:
                break
        took_ms = (time.perf_counter() - started) * 1e3
        outcome.inputs += 1
        outcome.slow += took_ms > SLOW_MS
        if took_ms > outcome.slowest_ms:
            outcome.slowest_ms, outcome.slowest = took_ms, data
    outcome.seconds = time.perf_counter() - began
    outcome.growth_bytes = _peak_bytes() - before_bytes
    return outcome


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise LookupError("/proc tells no VmHWM of this process")
