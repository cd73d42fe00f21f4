"""The clients' two clocks: the one module of them that reads the time.

Owns no more than that, so that a simulation has one place to put its own time. What only waits
asks the event loop, whose time is its own.
"""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """Milliseconds of a clock that never goes back; its zero means nothing."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since the epoch; may jump."""
    return time.time_ns() // 1_000_000
