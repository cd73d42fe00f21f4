"""The timer of a connection: it ends what is overdue at the moment for which it is set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from millrace_wire.connection import Connection, Reply
from millrace_wire.frame_reader import Scratch
from millrace_wire.request_pipeline import RequestPipeline
from tests.connection.broker_calls import CONFIG


class StoppedLoop:
    """A loop whose clock stands at the timer that was set last."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.on_timer: Callable[[], None] | None = None

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> StoppedLoop:
        self.now_s, self.on_timer = when_s, callback
        return self


class OneDeadline:
    """A pipeline with one request, which is overdue from its deadline on."""

    def __init__(self, deadline_ms: int) -> None:
        self._deadline_ms: int | None = deadline_ms

    def deadline_ms(self) -> int | None:
        return self._deadline_ms

    def on_deadline(self, now_ms: int) -> list[object]:
        if self._deadline_ms is not None and self._deadline_ms <= now_ms:
            self._deadline_ms = None
        return []


async def test_a_timer_is_not_set_again_for_the_moment_it_has_reached() -> None:
    rounded_down = [ms for ms in range(1_001, 3_000) if int(ms / 1000 * 1000) < ms]
    assert rounded_down
    for deadline_ms in rounded_down:
        loop = StoppedLoop()
        connection = Connection(("localhost", 1), CONFIG, Scratch(8_192))
        connection._loop = cast(asyncio.AbstractEventLoop, loop)
        connection._pipeline = cast(RequestPipeline[Reply], OneDeadline(deadline_ms))
        connection._set_timer()
        assert loop.on_timer is not None
        on_timer, loop.on_timer = loop.on_timer, None
        on_timer()
        assert loop.on_timer is None
