"""How long to wait before the next attempt, with jitter."""

from __future__ import annotations

from typing import Protocol

_DOUBLINGS_MAX = 16


class Rng(Protocol):
    """The part of `random.Random` that jitter needs."""

    def random(self) -> float:
        """A number in [0, 1)."""


def backoff_ms(attempt: int, *, first_ms: int, max_ms: int, rng: Rng) -> int:
    """Milliseconds before retry number `attempt`, counted from 0; at least 1.

    Doubles up to `max_ms` and is then spread over its upper half, so that clients which failed
    together do not come back together.
    """
    full = min(max_ms, first_ms << min(attempt, _DOUBLINGS_MAX))
    return max(1, int(full * (0.5 + rng.random() / 2)))


class Backoff:
    """The waits between the attempts of one owner; `reset` after a success."""

    __slots__ = ("_attempts", "_first_ms", "_max_ms", "_rng")

    def __init__(self, *, first_ms: int, max_ms: int, rng: Rng) -> None:
        self._attempts = 0
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._rng = rng

    def next_ms(self) -> int:
        """Milliseconds to wait before the next attempt."""
        attempt, self._attempts = self._attempts, self._attempts + 1
        return backoff_ms(attempt, first_ms=self._first_ms, max_ms=self._max_ms, rng=self._rng)

    def reset(self) -> None:
        """An attempt succeeded."""
        self._attempts = 0
