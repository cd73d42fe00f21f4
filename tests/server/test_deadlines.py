"""Deadlines against a dictionary, and the alarm that rings them."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millrace_server.loop.alarm import Alarm
from millrace_server.loop.deadlines import Deadlines

KEYS = st.integers(0, 20)
TIMES = st.integers(0, 1_000)


class DeadlinesAgainstADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deadlines: Deadlines[int] = Deadlines()
        self.model: dict[int, tuple[int, int]] = {}
        self.count = 0

    @rule(key=KEYS, due_ms=TIMES)
    def set(self, key: int, due_ms: int) -> None:
        self.count += 1
        self.deadlines.set(key, due_ms)
        self.model[key] = (due_ms, self.count)

    @rule(key=KEYS)
    def cancel(self, key: int) -> None:
        assert self.deadlines.cancel(key) is (self.model.pop(key, None) is not None)

    @rule(now_ms=TIMES)
    def pop_due(self, now_ms: int) -> None:
        due = sorted((when, key) for key, when in self.model.items() if when[0] <= now_ms)
        assert self.deadlines.pop_due(now_ms) == [key for _, key in due]
        for _, key in due:
            del self.model[key]

    @invariant()
    def agrees(self) -> None:
        assert len(self.deadlines) == len(self.model)
        assert all(key in self.deadlines for key in self.model)
        earliest = min(self.model.values(), default=None)
        assert self.deadlines.next_due_ms() == (earliest[0] if earliest else None)


TestDeadlinesAgainstADictionary = DeadlinesAgainstADictionary.TestCase


@given(st.lists(KEYS, max_size=50))
def test_equal_deadlines_come_due_in_the_order_they_were_set(keys: list[int]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in keys:
        deadlines.set(key, 5)
    last_set = sorted(set(keys), key=lambda key: len(keys) - 1 - keys[::-1].index(key))
    assert deadlines.pop_due(4) == []
    assert deadlines.pop_due(5) == last_set


def test_cancelled_deadlines_do_not_pile_up() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for number in range(100_000):
        deadlines.set(number, 1_000_000 + number)
        deadlines.cancel(number)
    assert len(deadlines._heap) <= 64 + 1
    for _ in range(100_000):
        deadlines.set(1, 5)
    assert len(deadlines._heap) <= 2 * 1 + 64 + 1


class FakeLoop:
    """Timers that fire when the clock is moved."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.timers: list[tuple[int, Any]] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay: float, callback: Any) -> asyncio.TimerHandle:
        timer = FakeTimer(self)
        self.timers.append((self.now_ms + round(delay * 1000), callback))
        timer.entry = self.timers[-1]
        return timer  # type: ignore[return-value]

    def move(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        for entry in sorted(self.timers, key=lambda entry: entry[0]):
            if entry[0] <= self.now_ms and entry in self.timers:
                self.timers.remove(entry)
                entry[1]()


class FakeTimer:
    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop
        self.entry: tuple[int, Any] = (0, None)

    def cancel(self) -> None:
        if self.entry in self.loop.timers:
            self.loop.timers.remove(self.entry)


def test_alarm_rings_each_key_when_due_with_one_timer() -> None:
    loop = FakeLoop()
    rung: list[tuple[int, str]] = []
    alarm: Alarm[str] = Alarm(
        loop,
        loop,  # type: ignore[arg-type]
        lambda key: rung.append((loop.now_ms, key)),
    )
    alarm.set("slow", 900)
    alarm.set("quick", 100)
    alarm.set("gone", 150)
    alarm.set("moved", 120)
    assert len(loop.timers) == 1
    alarm.cancel("gone")
    alarm.set("moved", 400)
    for _ in range(100):
        loop.move(10)
        assert len(loop.timers) <= 1
    assert rung == [(100, "quick"), (400, "moved"), (900, "slow")]
    assert not loop.timers


def test_alarm_may_be_set_from_its_own_ring_and_is_silent_once_closed() -> None:
    loop = FakeLoop()
    rung: list[int] = []

    def ring(key: str) -> None:
        rung.append(loop.now_ms)
        alarm.set(key, loop.now_ms + 50)

    alarm: Alarm[str] = Alarm(loop, loop, ring)  # type: ignore[arg-type]
    alarm.set("tick", 50)
    for _ in range(20):
        loop.move(10)
    assert rung == [50, 100, 150, 200]
    alarm.close()
    loop.move(1_000)
    assert rung == [50, 100, 150, 200]
