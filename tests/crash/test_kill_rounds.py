"""Acked records survive kill -9, in order and once, and readers see nothing that is taken back.

`python -m tests.crash` runs more rounds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.kill_rounds import run_rounds


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_no_anomaly_is_seen_while_brokers_are_killed(tmp_path: Path, durability: str) -> None:
    outcome = await run_rounds(tmp_path / "data", rounds=5, seed=7, durability=durability)
    assert outcome.report.is_valid, str(outcome.report)
    assert 0 < outcome.polled <= outcome.sent
