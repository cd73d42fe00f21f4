"""Requests that wait, for data or for acks, each with a deadline.

One alarm serves all of them, so a parked request costs no timer of its own.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from millrace_server.environment.seams import Environment
from millrace_server.loop.alarm import Alarm

WAIT_MS_MAX = 300_000
"""A longer wait is cut to this, so that a client cannot park a request for a day."""


class Parked(Protocol):
    """A parked request, told apart by identity."""

    def __hash__(self) -> int: ...

    def expire(self) -> None:
        """The deadline has passed: the request completes with what there is."""


class Purgatory:
    """Keeps parked requests and their deadlines. Lives on the loop that constructs it."""

    def __init__(self, env: Environment) -> None:
        self._clock = env.clock
        self._alarm: Alarm[Parked] = Alarm(env.clock, asyncio.get_running_loop(), self._ring)
        self._parked: dict[Parked, None] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def add(self, parked: Parked, timeout_ms: int, *, latest_ms: int | None = None) -> None:
        """Calls `expire` after `timeout_ms`, unless the request is removed before.

        `latest_ms`, of the monotonic clock, is when it does so at the latest.
        """
        self._parked[parked] = None
        due_ms = self._clock.monotonic_ms() + min(max(timeout_ms, 0), WAIT_MS_MAX)
        if latest_ms is not None:
            due_ms = min(due_ms, latest_ms)
        self._alarm.set(parked, due_ms)

    def remove(self, parked: Parked) -> None:
        """Forgets a request; nothing happens when it is not parked."""
        if self._parked.pop(parked, self) is None:
            self._alarm.cancel(parked)

    def expire_all(self) -> None:
        """Treats every deadline as passed."""
        for parked in list(self._parked):
            parked.expire()

    def close(self) -> None:
        """Stops the alarm; no deadline passes any more."""
        self._alarm.close()

    def _ring(self, parked: Parked) -> None:
        if self._parked.pop(parked, self) is None:
            parked.expire()
