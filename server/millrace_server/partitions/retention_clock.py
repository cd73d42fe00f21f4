"""The wall clock as retention uses it: a step forward is not trusted at once.

A wall clock that jumps ahead, by a wrong NTP answer or a typing error, makes every record look old,
and what retention deletes does not come back when the clock does. Pure: both clocks are parameters.
"""

from __future__ import annotations

from typing import Final

STEP_MS_MAX: Final = 10 * 60_000
"""A larger step between two looks is suspicious. NTP slews or steps by less."""
HOLD_MS: Final = 3_600_000
"""After this time without a correction the step counts as right: an hour for an operator to act."""


class RetentionClock:
    """Follows the wall clock, but for a step forward, which it takes over after `HOLD_MS`."""

    def __init__(self, *, wall_ms: int, monotonic_ms: int) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._held_since_ms: int | None = None

    @property
    def is_holding(self) -> bool:
        """Whether the wall clock has stepped forward and is not trusted."""
        return self._held_since_ms is not None

    def now_ms(self, *, wall_ms: int, monotonic_ms: int) -> int:
        """The time by which records may be deleted."""
        expected_ms = self._wall_ms + monotonic_ms - self._monotonic_ms
        if wall_ms - expected_ms > STEP_MS_MAX:
            if self._held_since_ms is None:
                self._held_since_ms = monotonic_ms
            if monotonic_ms - self._held_since_ms < HOLD_MS:
                return expected_ms
        self._held_since_ms = None
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        return wall_ms
