"""A process of the demo's group, seen from the demo: what it is told, and what it says.

Owns the process, from its start to its end or its kill. What it does is `member`'s, what it
said goes into the ledger.
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
    """A member of the group. `on_change` is called whenever it has said something or ended."""

    def __init__(self, number: int, ledger: Ledger, on_change: Callable[[], None]) -> None:
        self.number = number
        self.assigned: list[int] = []
        """The partitions that it has, as far as it has said so."""
        self.is_held = False
        """Whether it has processed what it will not commit."""
        self.has_ended = False
        """Whether it will say nothing any more."""
        self.was_killed = False
        self._ledger = ledger
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self, *arguments: str) -> None:
        """Starts it with the arguments of `member`; it joins when it is told to."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Nothing in the directory where the demo was started is taken for a module.
            "-P",
            *("-m", "millrace_cli.demo.member", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            # ^C is for the demo; a member ends with its stdin.
            start_new_session=True,
        )
        self._listening = asyncio.create_task(self._listen(self._process))

    async def tell(self, *words: str) -> None:
        """Says words to it; one that has ended is told nothing."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write("".join(f"{word}\n" for word in words).encode())
            await self._process.stdin.drain()

    async def end(self) -> int:
        """Ends its stdin; returns its exit code when it has left the group and ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, if it still runs; returns when all that it has said is known."""
        if self._process is None or self._listening is None:
            return
        self.was_killed = True
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._listening
        await self._process.wait()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                # A line that the kill has cut is not a thing done.
                if line.endswith(b"\n"):
                    self._note(*json.loads(line))
                    self._on_change()
        finally:
            self.has_ended = True
            self._on_change()

    def _note(self, what: str, at_ns: int, rows: list[Any]) -> None:
        if what == "assigned":
            self.assigned = rows
        elif what == "committed":
            self._ledger.committed(self.number, rows)
        elif what == "refused":
            self._ledger.refused(self.number, rows)
        else:
            self._ledger.processed(self.number, at_ns, rows)
            self.is_held = what == "held"
