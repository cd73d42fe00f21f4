"""One broker that is a process: its signals, and the faults of its machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

LISTENING = b"listening on "
"""How the line begins that a broker writes when it takes connections."""
DONE = b"done\n"
"""What a broker writes when it has carried out a command."""
Command = dict[str, Any]
"""See `faulty_serve`."""


class BrokerProcess:
    """A process that was started; it takes commands at once."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._listening: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._unanswered: deque[asyncio.Future[None]] = deque()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, environment: Mapping[str, str]) -> Self:
        """A broker with these settings beside the environment of this process."""
        command = (sys.executable, "-m", "millrace_server.testing.faulty_serve")
        return cls(
            await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, env={**os.environ, **environment}
            )
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_paused(self) -> bool:
        """Whether it was stopped, and not had go on."""
        return not self._resumed.is_set()

    async def is_listening(self) -> bool:
        """Returns when the broker takes connections, or has ended instead."""
        return await self._listening

    def pause(self) -> None:
        """Stops the process with SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)
        self._resumed.clear()

    def resume(self) -> None:
        """Has it go on."""
        self._process.send_signal(signal.SIGCONT)
        self._resumed.set()

    async def command(self, *commands: Command) -> None:
        """Returns when the process has carried them out, unless it is paused or has ended."""
        assert self._process.stdin is not None
        done = [asyncio.get_running_loop().create_future() for _ in commands]
        self._unanswered += done
        self._process.stdin.writelines(json.dumps(each).encode() + b"\n" for each in commands)
        if done and not self.is_paused:
            await asyncio.wait(done)

    async def end(self, number: signal.Signals) -> int:
        """Sends a signal, and has a paused process go on; returns its exit code."""
        self._process.send_signal(number)
        if self.is_paused:
            self.resume()
        return await self.wait()

    async def wait(self) -> int:
        """Returns the exit code when the process has ended."""
        code = await self._process.wait()
        await self._reading
        return code

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line == DONE:
                self._unanswered.popleft().set_result(None)
            elif line.startswith(LISTENING):
                self._listening.set_result(True)
        if not self._listening.done():
            self._listening.set_result(False)
        while self._unanswered:
            self._unanswered.popleft().set_result(None)
