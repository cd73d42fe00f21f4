"""The high watermarks of this broker's replicas, saved every few seconds.

Owns when they are written; `high_watermarks` has the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from millrace_server.environment.seams import Environment
from millrace_server.logs import FAILURE_LINE_MS, LogRateLimiter, get_logger
from millrace_server.replicas.high_watermarks import (
    read_high_watermarks,
    write_high_watermarks,
)
from millrace_server.replication.messages import PartitionKey

SAVE_INTERVAL_MS: Final = 5_000
log = get_logger("millrace.replication")


class SavedHighWatermarks:
    """What is on the disk, and the task that writes it anew."""

    def __init__(self, env: Environment, current: Callable[[], dict[PartitionKey, int]]) -> None:
        """`current()` has the high watermarks of all replicas of this broker."""
        self._env = env
        self._current = current
        self._saved: dict[PartitionKey, int] = {}
        self._lines = LogRateLimiter(env.clock, lines=1, period_ms=FAILURE_LINE_MS)
        self._one_save = asyncio.Lock()
        self._saving: asyncio.Task[None] | None = None

    def get(self, key: PartitionKey) -> int | None:
        """The offset of a replica that is on the disk."""
        return self._saved.get(key)

    async def load(self) -> None:
        """Reads those of the last process, and saves from now on. Raises `OSError`."""
        self._saved = await self._env.spawn.blocking(read_high_watermarks, self._env.disk)
        self._saving = self._env.spawn.task(self._save_often(), name="high watermarks")

    async def save(self) -> None:
        """Makes the high watermarks durable. Raises `OSError`."""
        # Two writes of the file at once would mix.
        async with self._one_save:
            offsets = self._current()
            if offsets != self._saved:
                await self._env.spawn.blocking(write_high_watermarks, self._env.disk, offsets)
                self._saved = offsets

    async def close(self) -> None:
        """Saves them for the last time."""
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.wait([self._saving])
            await self._save_if_possible()

    async def _save_often(self) -> None:
        while True:
            await asyncio.sleep(SAVE_INTERVAL_MS / 1000)
            await self._save_if_possible()

    async def _save_if_possible(self) -> None:
        """What cannot be written is written later."""
        try:
            await self.save()
        except OSError as error:
            if (suppressed := self._lines.take()) is not None:
                log.warning("high watermarks not saved", reason=str(error), suppressed=suppressed)
