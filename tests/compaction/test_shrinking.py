"""Compaction shrinks a topic. `python -m tests.compaction` measures it at full size."""

from __future__ import annotations

from pathlib import Path

from millrace_server.testing import Broker
from tests.compaction.shrinking import shrink


async def test_a_topic_of_many_updates_shrinks_to_its_live_set(tmp_path: Path) -> None:
    async with Broker(data=tmp_path, compaction_bytes_per_second=1 << 30) as broker:
        found = await shrink(broker, updates=20_000, keys=50, segment_bytes=100_000)
    assert found.is_same
    assert found.bytes_before > 1_900_000
    assert found.records_after == 50 + 3
    assert found.bytes_after < 130_000
