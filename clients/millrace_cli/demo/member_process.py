"""A process of the demo's group: the demo sends it commands and reads its reports.

Owns the process, from its start to its end or its kill. `member` is its program; its reports go
into the ledger.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from millrace_cli.demo.ledger import Ledger

LINE_BYTES_MAX = 1 << 20


class MemberProcess:
    """A member of the group. Calls `on_change` after each report and at its end."""

    def __init__(self, number: int, ledger: Ledger, on_change: Callable[[], None]) -> None:
        self.number = number
        self.assigned: list[int] = []
        """Its partitions, by its last report."""
        self.is_held = False
        """Whether it has processed records that it will not commit."""
        self.has_ended = False
        """Whether the process has ended."""
        self.was_killed = False
        self._ledger = ledger
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, *arguments: str) -> None:
        """Starts the process with the arguments of `member`; it joins at the command `join`."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            # No module is imported from the current directory.
            "-P",
            *("-m", "millrace_cli.demo.member", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            # ^C reaches the demo only; a member ends at the end of its stdin.
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read_reports(self._process))

    async def send(self, *words: str) -> None:
        """Sends commands; ignores a process that has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write("".join(f"{word}\n" for word in words).encode())
            await self._process.stdin.drain()

    async def end(self) -> int:
        """Closes its stdin, so that it leaves the group; returns its exit code."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self._process.wait()

    async def kill(self) -> None:
        """Kills the process with SIGKILL; returns when all of its reports are read."""
        if self._process is None or self._reading is None:
            return
        self.was_killed = True
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._reading
        await self._process.wait()

    async def _read_reports(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                # The kill may have cut the last line.
                if line.endswith(b"\n"):
                    self._add_report(*json.loads(line))
                    self._on_change()
        finally:
            self.has_ended = True
            self._on_change()

    def _add_report(self, kind: str, at_ns: int, rows: list[Any]) -> None:
        if kind == "assigned":
            self.assigned = rows
        elif kind == "committed":
            self._ledger.committed(self.number, rows)
        elif kind == "refused":
            self._ledger.refused(self.number, rows)
        else:
            self._ledger.processed(self.number, at_ns, rows)
            self.is_held = kind == "held"
