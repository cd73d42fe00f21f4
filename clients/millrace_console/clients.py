"""The clients of one user of the brokers: what the pages of a session are read and changed with.

Owns their life. The shared ones act for the process of the console, all others for the user of one
session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from millrace.admin import Admin
from millrace_console.sampler import Sampler
from millrace_console.tail import Tails


class Clients:
    """`start` once, then `run_in` a group of tasks, until `end`. `options` are settings."""

    def __init__(self, servers: str, options: Mapping[str, Any]) -> None:
        self.servers = servers
        self.options = options
        self.admin = Admin(servers, **options)
        self.sampler = Sampler(self.admin)
        self.tails = Tails(servers, options)
        self._running: asyncio.Task[None] | None = None

    @property
    def user(self) -> str:
        """The name of the user; empty for a client that has not logged in with one."""
        return str(self.options.get("username", ""))

    @property
    def is_busy(self) -> bool:
        """Whether a tail is open."""
        return self.tails.is_open

    async def start(self) -> None:
        """Connects, and logs in. Raises what `Admin.start` raises, and leaves nothing open then."""
        await self.admin.start()

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        """Reads the cluster until the end."""
        self._running = tasks.create_task(self._run())

    def end(self) -> None:
        """Ends the tails and the reads, and disconnects in the background."""
        self.tails.close()
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        try:
            await self.sampler.run()
        finally:
            await self.admin.close()
