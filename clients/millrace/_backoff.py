"""How long to wait before trying again."""

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
