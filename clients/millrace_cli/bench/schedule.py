"""When each record of a run with a limited rate is due, and the wait for it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

TIMER_NS = 1_000_000
"""Timers of event loops have steps of 1 ms."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`rate` records per second, the first at `start_ns`."""

    start_ns: int
    rate: int

    def due_ns(self, number: int) -> int:
        """When record `number`, counted from 0, is due."""
        return self.start_ns + number * 10**9 // self.rate

    def due_count(self, now_ns: int) -> int:
        """How many records are due by now.

        >>> schedule = Schedule(0, 1000)
        >>> [schedule.due_count(ms * 1_000_000) for ms in (0, 1, 7)]
        [1, 2, 8]
        """
        return (now_ns - self.start_ns) * self.rate // 10**9 + 1

    async def wait(self, number: int) -> int:
        """Waits until record `number` is due; returns how many are due then.

        Rounds up to steps of the timer: a shorter wait would be none, and the loop would be busy.
        """
        while True:
            now_ns = time.monotonic_ns()
            ahead_ns = self.due_ns(number) - now_ns
            if ahead_ns <= 0:
                return self.due_count(now_ns)
            await asyncio.sleep(-(-ahead_ns // TIMER_NS) * TIMER_NS / 1e9)

    def latency_ns(self, number: int, sent_ns: int, end_ns: int) -> int:
        """How long record `number` took, sent at `sent_ns`, until `end_ns`.

        It begins when the record is due, so that a stall of the sender counts for each record that
        it delays. The step of the timer does not count: up to 1 ms from due to sent is left out.
        """
        return end_ns - min(sent_ns, self.due_ns(number) + TIMER_NS)
