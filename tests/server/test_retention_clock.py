"""The time by which retention deletes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace_server.partitions.retention_clock import HOLD_MS, STEP_MS_MAX, RetentionClock

WALL = 1_700_000_000_000
YEARS = 75 * 365 * 86_400_000


def clock() -> RetentionClock:
    return RetentionClock(wall_ms=WALL, monotonic_ms=0)


def test_a_clock_that_runs_evenly_is_followed() -> None:
    time = clock()
    for ms in range(0, 10 * HOLD_MS, HOLD_MS // 3):
        assert time.now_ms(wall_ms=WALL + ms, monotonic_ms=ms) == WALL + ms
        assert not time.is_holding


def test_a_step_forward_is_trusted_after_an_hour() -> None:
    time = clock()
    assert time.now_ms(wall_ms=WALL + YEARS, monotonic_ms=1_000) == WALL + 1_000
    assert time.is_holding
    almost = 1_000 + HOLD_MS - 1
    assert time.now_ms(wall_ms=WALL + YEARS + almost, monotonic_ms=almost) == WALL + almost
    after = 1_000 + HOLD_MS
    assert time.now_ms(wall_ms=WALL + YEARS + after, monotonic_ms=after) == WALL + YEARS + after
    assert not time.is_holding


def test_a_step_that_is_corrected_leaves_no_trace() -> None:
    time = clock()
    assert time.now_ms(wall_ms=WALL + YEARS, monotonic_ms=1_000) == WALL + 1_000
    assert time.now_ms(wall_ms=WALL + 2_000, monotonic_ms=2_000) == WALL + 2_000
    assert not time.is_holding
    assert time.now_ms(wall_ms=WALL + YEARS, monotonic_ms=HOLD_MS) == WALL + HOLD_MS


def test_a_step_back_is_followed() -> None:
    time = clock()
    assert time.now_ms(wall_ms=WALL - YEARS, monotonic_ms=1_000) == WALL - YEARS


@given(st.lists(st.tuples(st.integers(0, HOLD_MS // 4), st.integers(-YEARS, YEARS)), max_size=4))
def test_within_an_hour_no_wall_clock_moves_the_time_ahead_of_the_monotonic_one_by_more_than_a_step(
    looks: list[tuple[int, int]],
) -> None:
    time, monotonic_ms, reached = clock(), 0, WALL
    for elapsed_ms, error_ms in looks:
        monotonic_ms += elapsed_ms
        found = time.now_ms(wall_ms=WALL + monotonic_ms + error_ms, monotonic_ms=monotonic_ms)
        assert found <= max(reached + elapsed_ms, WALL + monotonic_ms) + STEP_MS_MAX
        reached = max(found, reached + elapsed_ms)
