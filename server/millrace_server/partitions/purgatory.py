"""Requests that wait: for data or for durability, each with a deadline.

One alarm serves all of them, so that a waiting request costs no timer of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from millrace_server.environment.seams import Environment
from millrace_server.loop.alarm import Alarm

T = TypeVar("T")
WAIT_MS_MAX = 300_000
"""A longer wait is cut to this, so that a client cannot park a request for a day."""


class Waiting(Generic[T]):
    """One waiting request. Its future is done once: answered, or cancelled as its client left."""

    __slots__ = ("future", "on_due")

    def __init__(self, future: asyncio.Future[T], on_due: Callable[[], object]) -> None:
        self.future = future
        self.on_due = on_due

    def finish(self, answer: T) -> bool:
        """Answers the request; False when it has its answer already or its client is gone."""
        if self.future.done():
            return False
        self.future.set_result(answer)
        return True


class Purgatory:
    """Keeps waiting requests and their deadlines. Lives on the loop that constructs it."""

    def __init__(self, env: Environment) -> None:
        self._clock = env.clock
        self._loop = asyncio.get_running_loop()
        self._alarm: Alarm[Waiting[Any]] = Alarm(env.clock, self._loop, _ring)
        self._inside: dict[Waiting[Any], None] = {}

    def __len__(self) -> int:
        return len(self._inside)

    def enter(self, timeout_ms: int, *, on_due: Callable[[], object]) -> Waiting[Any]:
        """A new waiting request; `on_due` is called unless its future is done before."""
        waiting: Waiting[Any] = Waiting(self._loop.create_future(), on_due)
        due_ms = self._clock.monotonic_ms() + min(max(timeout_ms, 0), WAIT_MS_MAX)
        self._inside[waiting] = None
        self._alarm.set(waiting, due_ms)
        waiting.future.add_done_callback(lambda _: self._leave(waiting))
        return waiting

    def hurry(self) -> None:
        """Treats everyone's deadline as passed."""
        for waiting in list(self._inside):
            waiting.on_due()

    def close(self) -> None:
        """Stops the clock; nobody comes due any more."""
        self._alarm.close()

    def _leave(self, waiting: Waiting[Any]) -> None:
        self._inside.pop(waiting, None)
        self._alarm.cancel(waiting)
        # It refers to the one that waits: a cycle, which would stay until the next collection.
        waiting.on_due = _too_late


def _too_late() -> None:
    pass


def _ring(waiting: Waiting[Any]) -> None:
    waiting.on_due()
