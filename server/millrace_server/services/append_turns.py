"""Batches that wait before they are appended, and those of the same partition behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    takers: int = 0


class AppendTurns:
    """Batches of one partition are appended in the order of the requests (wire_spec.md W-2.6)."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, int], _Turn] = {}
        """Partitions of which a batch waits."""

    @asynccontextmanager
    async def take(self, partition: tuple[str, int]) -> AsyncIterator[None]:
        """Waits for the turn of a batch, which is appended without an `await` behind it."""
        turn = self.waiting.setdefault(partition, _Turn())
        turn.takers += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.takers -= 1
            if not turn.takers:
                del self.waiting[partition]
