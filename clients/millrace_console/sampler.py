"""Reads the cluster every two seconds, and keeps the last snapshot and the history.

Owns the task. A read that takes longer delays the next one: at most one is on its way.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from millrace.admin import Admin
from millrace_console import views
from millrace_console.errors import Refused
from millrace_console.history import History, Rates
from millrace_console.snapshot import Snapshot, read_snapshot

INTERVAL_S = 2.0


class Sampler:
    """Lives as long as its `run`. `snapshot` is None until the first read is done."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._rates = Rates()
        self._wake = asyncio.Event()
        self._is_read = asyncio.Event()
        self.history = History()
        self.rates: dict[str, float | None] = {}
        self.snapshot: Snapshot | None = None

    async def run(self) -> None:
        """Reads until it is cancelled."""
        try:
            while True:
                self._wake.clear()
                self.take(await read_snapshot(self._admin, time.time_ns() // 1_000_000))
                with suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL_S):
                        await self._wake.wait()
        finally:
            self._is_read.set()

    def take(self, found: Snapshot) -> None:
        """Makes a snapshot the current one."""
        self.rates = self._rates.update(found.read_ms, views.counters(found))
        lags = {views.group_lag(name): found.total_lag(name) for name in found.groups}
        self.history.add(found.read_ms, {**self.rates, **lags})
        self.snapshot = found
        self._is_read.set()

    async def first(self) -> Snapshot:
        """The current snapshot; waits for the first. Raises `Refused` where none will come."""
        await self._is_read.wait()
        if self.snapshot is None:
            raise Refused("The session has ended; log in again")
        return self.snapshot

    def refresh(self) -> None:
        """Something was changed: reads at once."""
        self._wake.set()
