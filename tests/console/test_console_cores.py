"""The parts of the console that decide: access, history, rates, and how bytes are shown."""

from __future__ import annotations

import doctest
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_console import access, history, record_view
from millrace_console.access import (
    FAILURES_MAX,
    FAILURES_S,
    SESSION_S,
    SESSIONS_MAX,
    LoginAttempts,
    Sessions,
)
from millrace_console.history import History, Rates
from millrace_console.record_view import hex_dump, shown


@pytest.mark.parametrize("module", [access, history, record_view])
def test_the_examples_in_docstrings_are_true(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@dataclass
class FakeClients:
    """Clients that do nothing."""

    is_busy: bool = False
    has_ended: bool = False

    def end(self) -> None:
        self.has_ended = True


def test_a_session_ends_and_the_oldest_gives_way() -> None:
    sessions = Sessions()
    sessions.add("a", "token", FakeClients(), now_s=0)
    assert sessions.find("a", SESSION_S - 1) is not None
    assert sessions.find("a", SESSION_S) is None
    assert sessions.find("a", 0) is None
    for number in range(SESSIONS_MAX + 1):
        sessions.add(str(number), "token", FakeClients(), now_s=0)
    assert sessions.find("0", 1) is None and sessions.find("1", 1) is not None


def test_clients_of_one_session_end_with_it() -> None:
    sessions = Sessions(count_max=2, idle_s=10)
    idle, used, tailing, last = (FakeClients() for _ in range(4))
    sessions.add("idle", "token", idle, now_s=0)
    sessions.add("used", "token", used, now_s=0)
    assert sessions.find("used", 5) is not None
    sessions.end_overdue(10)
    assert (idle.has_ended, used.has_ended) == (True, False)
    tailing.is_busy = True
    sessions.add("tailing", "token", tailing, now_s=10)
    sessions.end_overdue(100)
    assert (used.has_ended, tailing.has_ended) == (True, False)
    for name in ("last", "one more"):
        sessions.add(name, "token", last, now_s=100)
    assert tailing.has_ended and not last.has_ended
    sessions.remove("last")
    assert last.has_ended


def test_an_address_may_fail_so_often_in_a_minute() -> None:
    attempts = LoginAttempts()
    assert all(attempts.may_try("192.0.2.1", 0) for _ in range(FAILURES_MAX))
    assert not attempts.may_try("192.0.2.1", FAILURES_S - 1)
    assert attempts.may_try("192.0.2.2", 0)
    assert attempts.may_try("192.0.2.1", FAILURES_S)
    attempts.succeeded("192.0.2.1")
    for _ in range(FAILURES_MAX - 1):
        assert attempts.may_try("192.0.2.1", FAILURES_S)
    for _ in range(FAILURES_MAX):  # Own logins give no more guesses.
        assert attempts.may_try("192.0.2.1", FAILURES_S)
        attempts.succeeded("192.0.2.1")
    assert attempts.may_try("192.0.2.1", FAILURES_S)
    assert not attempts.may_try("192.0.2.1", FAILURES_S)
    for number in range(FAILURES_MAX):
        assert attempts.may_try(f"2001:db8::{number}", 0)
    assert not attempts.may_try("2001:db8::ffff", 0)


def test_a_counter_that_falls_has_no_rate() -> None:
    rates = Rates()
    assert rates.update(1_000, {"a": 10}) == {"a": None}
    assert rates.update(3_000, {"a": 30, "b": 1}) == {"a": 10, "b": None}
    assert rates.update(5_000, {"a": 5}) == {"a": None}
    assert rates.update(5_000, {"a": 6}) == {"a": None}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.none() | st.integers()), max_size=20))
def test_a_course_is_as_long_as_the_times_and_bounded(
    samples: list[dict[str, float | None]],
) -> None:
    found = History(samples_max=5, series_max=2)
    for now_ms, values in enumerate(samples):
        found.add(now_ms, values)
    courses = [found.course(name) for name in "abc"]
    assert sum(bool(course["values"]) for course in courses) <= 2
    for name, course in zip("abc", courses, strict=True):
        if course["values"]:
            assert course["times_ms"] == list(range(len(samples)))[-5:]
            assert course["values"][-1] == samples[-1].get(name)


@given(st.binary(max_size=300), st.integers(4, 100))
def test_bytes_are_shown_within_the_bound(data: bytes, bytes_max: int) -> None:
    found = shown(data, bytes_max)
    assert found is not None and found["size"] == len(data)
    if "text" in found:
        assert data.startswith(found["text"].encode())
        assert len(found["text"].encode()) <= bytes_max
        assert found["cut"] == (len(data) > bytes_max)
    else:
        assert data.startswith(bytes.fromhex(found["hex"]))
        assert len(found["hex"]) <= bytes_max
    assert len(hex_dump(data, bytes_max)) == -(-min(len(data), bytes_max) // 16)
