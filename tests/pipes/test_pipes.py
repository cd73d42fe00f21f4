"""Nothing is lost at a pipe. `python -m tests.pipes` sends a million records."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import serving
from tests.pipes.slow_reader import run


def test_a_slow_reader_gets_every_line_and_the_lag_is_what_was_not_written(tmp_path: Path) -> None:
    environment = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    flags = ("--data", str(tmp_path), "--log-level", "error")
    with serving(*flags, environment=environment) as broker:
        found = run(broker.servers, records=30_000, actions=4, seed=7)
    assert found.faults == []
    assert (found.lines, found.lag) == (30_000, 0)
    assert found.read_md5 == found.sent_md5
    assert found.lives > 1
    assert found.stalls + found.stops > 0
