"""The collector of cycles never finds much to look through at once."""

from __future__ import annotations

import asyncio
import gc
from collections import deque

import pytest

from millrace_server.loop import garbage

MADE_AT_ONCE = 1_000
"""What a loop makes between two sweeps."""
HELD = 50 * MADE_AT_ONCE


async def _replace_all(held: deque[list[int]]) -> int:
    """The most young objects there were while new ones took the places of all that are held."""
    most = 0
    for _ in range(HELD // MADE_AT_ONCE):
        for _ in range(MADE_AT_ONCE):
            held.append([])
        for _ in range(3):
            await asyncio.sleep(0)
        most = max(most, len(gc.get_objects(0)) + len(gc.get_objects(1)))
    return most


@pytest.mark.parametrize("is_swept", [False, True])
async def test_young_objects_stay_few_where_new_ones_take_the_place_of_old_ones(
    is_swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "SWEEP_S", 0)
    held: deque[list[int]] = deque(([] for _ in range(HELD)), HELD)
    gc.collect()
    sweeping = asyncio.create_task(garbage.sweep_young()) if is_swept else None
    try:
        most = await _replace_all(held)
    finally:
        if sweeping is not None:
            sweeping.cancel()
    if is_swept:
        assert most <= sum(garbage.YOUNG_MAX) + 2 * MADE_AT_ONCE
    else:
        assert most > HELD // 2, "the collector counts them now: nothing has to be swept"


async def test_a_sweep_leaves_the_old_and_the_few_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "SWEEP_S", 0)
    gc.collect()
    before = gc.get_stats()
    sweeping = asyncio.create_task(garbage.sweep_young())
    for _ in range(50):
        await asyncio.sleep(0)
    sweeping.cancel()
    assert gc.get_stats() == before
