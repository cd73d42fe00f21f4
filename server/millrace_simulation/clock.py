"""The clocks of one machine: each runs at a rate of its own, and the wall clock may jump.

Owns how far a machine's time is from the true one, which is the loop's. The monotonic clock begins
anywhere when the machine boots and never goes back; loop and timers of a process follow it. The
wall clock is the true time, at the machine's rate, and an offset that `step` changes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

EPOCH_MS = 1_700_000_000_000
ZERO_S_MAX = 100_000.0


@dataclass(frozen=True, slots=True)
class Skew:
    """How far the clocks of one run are apart: at most `offset_ms`, and `drift` s in a second."""

    offset_ms: int = 0
    drift: float = 0.0


NO_SKEW = Skew()


class TrueTime(Protocol):
    """The event loop, as far as clocks need it."""

    now_s: float


class MachineClock:
    """See `seams.Clock`. `local = zero_s + true * rate` is the monotonic clock, in seconds."""

    def __init__(self, true: TrueTime, rng: random.Random, skew: Skew) -> None:
        self.rate = 1.0 + rng.uniform(-skew.drift, skew.drift)
        self.zero_s = 0.0
        self._true = true
        self._rng = rng
        self._home_offset_ms = rng.randint(-skew.offset_ms, skew.offset_ms)
        self._offset_ms = self._offset_ms_max = self._home_offset_ms
        self.boot()

    def boot(self) -> None:
        """The machine starts: its monotonic clock begins anywhere."""
        self.zero_s = self._rng.random() * ZERO_S_MAX

    def step(self, offset_ms: int) -> None:
        """The wall clock jumps to so far from where a run had it at its beginning."""
        self._offset_ms = self._home_offset_ms + offset_ms
        self._offset_ms_max = max(self._offset_ms_max, self._offset_ms)

    def wall_ms(self) -> int:
        return EPOCH_MS + self._offset_ms + int(self._true.now_s * self.rate * 1000)

    def wall_ms_max(self) -> int:
        """The latest time that the wall clock may have shown so far."""
        return self.wall_ms() + self._offset_ms_max - self._offset_ms

    def monotonic_ms(self) -> int:
        return int((self.zero_s + self._true.now_s * self.rate) * 1000)

    def monotonic_ns(self) -> int:
        return int((self.zero_s + self._true.now_s * self.rate) * 1_000_000_000)
