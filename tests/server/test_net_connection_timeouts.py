"""Time limits, decided without a clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace_server.limits import Limits
from millrace_server.net.connection_timeouts import Activity, ConnectionTimeouts

LIMITS = Limits()
QUIET = Activity(
    requests=1,
    bytes_in=0,
    bytes_out=10,
    partial=False,
    holds_scarce_memory=False,
    response_due=False,
    waits_for_peer=False,
    input_ended=False,
    lingers=False,
)


def first_overdue(sights: dict[int, Activity], *, until_ms: int) -> tuple[int, str] | None:
    """When and why a connection is overdue that is looked at every 500 ms; `sights` tells from
    when on it looks how."""
    timeouts = ConnectionTimeouts(LIMITS, 0)
    sight = QUIET
    for now_ms in range(0, until_ms, 500):
        sight = sights.get(now_ms, sight)
        why = timeouts.overdue(now_ms, sight)
        if why is not None:
            return now_ms, why
    return None


@pytest.mark.parametrize(
    ("sights", "expected_ms", "reason"),
    [
        ({0: replace(QUIET, requests=0, bytes_out=0)}, 5_000, "no whole request"),
        ({0: replace(QUIET, requests=0, bytes_out=0, partial=True)}, 5_000, "no whole request"),
        ({0: replace(QUIET, partial=True)}, 60_000, "not finished"),
        (
            # A second request begins at once: its own time counts.
            {
                0: replace(QUIET, partial=True),
                50_000: replace(QUIET, requests=2, partial=True),
            },
            110_000,
            "not finished",
        ),
        ({0: replace(QUIET, response_due=True, waits_for_peer=True)}, 30_000, "read nothing"),
        (
            {
                0: replace(QUIET, response_due=True, waits_for_peer=True),
                29_500: replace(QUIET, response_due=True, waits_for_peer=True, bytes_out=11),
            },
            59_500,
            "read nothing",
        ),
        ({5_000: replace(QUIET, partial=True, holds_scarce_memory=True)}, 8_000, "held memory"),
        (
            # It comes fast enough for three seconds, and then no more.
            {
                5_000: replace(QUIET, partial=True, holds_scarce_memory=True),
                6_000: replace(QUIET, partial=True, holds_scarce_memory=True, bytes_in=400_000),
            },
            11_500,
            "held memory",
        ),
        (
            # No connection waits any more in between.
            {
                5_000: replace(QUIET, partial=True, holds_scarce_memory=True),
                7_500: replace(QUIET, partial=True),
                8_000: replace(QUIET, partial=True, holds_scarce_memory=True),
            },
            11_000,
            "held memory",
        ),
        ({0: QUIET}, 600_000, "idle"),
        ({0: replace(QUIET, response_due=True), 400_000: QUIET}, 999_500, "idle"),
        ({0: replace(QUIET, response_due=True, input_ended=True)}, 600_000, "idle"),
        ({1_000: replace(QUIET, lingers=True)}, 2_000, "our side was closed"),
    ],
)
def test_connection_is_overdue_exactly_when_its_limit_has_passed(
    sights: dict[int, Activity], expected_ms: int, reason: str
) -> None:
    overdue = first_overdue(sights, until_ms=2_000_000)
    assert overdue is not None
    assert overdue[0] == expected_ms
    assert reason in overdue[1]


def test_connection_that_waits_for_us_is_never_overdue() -> None:
    assert first_overdue({0: replace(QUIET, response_due=True)}, until_ms=5_000_000) is None
