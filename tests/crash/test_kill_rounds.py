"""Acked records survive kill -9, in order and once. `python -m tests.crash` runs more rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.kill_rounds import run_rounds


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_every_acked_record_is_there_once_and_in_order_after_kill_9(
    tmp_path: Path, durability: str
) -> None:
    outcome = await run_rounds(tmp_path / "data", rounds=5, seed=7, durability=durability)
    assert outcome.violations == []
    assert outcome.sent > 0
