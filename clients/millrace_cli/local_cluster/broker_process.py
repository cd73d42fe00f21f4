"""One broker of a local cluster, as a process: `millrace serve`.

Owns the process, from its start to its end. What it writes to stderr is appended to a log file.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millrace_cli.local_cluster.layout import HOST, BrokerPorts, Layout

_READY = b"listening on "
_LOG_TAIL_BYTES = 16_384
# A variable would override what the cluster needs, and there is no flag of it here.
_NOT_INHERITED = frozenset({"MILLRACE_ADVERTISE", "MILLRACE_INSECURE_LISTEN"})


class BrokerProcess:
    """Started any number of times, one process after the other.

    `on_end(broker)` is called when a process has ended that was not asked to.
    """

    def __init__(
        self,
        ports: BrokerPorts,
        layout: Layout,
        *,
        data: Path,
        log: Path,
        flags: tuple[str, ...],
        on_end: Callable[[BrokerProcess], None],
    ) -> None:
        self.node_id = ports.node_id
        self.server = f"{HOST}:{ports.port}"
        self.log = log
        self.flags = (
            *("--data", str(data), "--node-id", str(ports.node_id)),
            *("--listen", self.server, "--broker-listen", f"{HOST}:{ports.broker_port}"),
            *("--quorum", layout.quorum, *flags),
        )
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_stopping = False

    @property
    def command(self) -> str:
        """What a user types to start the broker alone."""
        return shlex.join(["millrace", "serve", *self.flags])

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and not self._ended.is_set()

    @property
    def pid(self) -> int:
        """The process that runs, or has run last."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int:
        """The exit code of the process that has ended; negative: the signal that ended it."""
        assert self._process is not None
        assert self._process.returncode is not None
        return self._process.returncode

    async def start(self) -> None:
        """Starts a process; `ready` says when it serves. Raises `OSError`."""
        self._is_stopping = False
        self._is_ready.clear()
        self._ended.clear()
        environment = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                # No module is imported from the current directory.
                *("-P", "-m", "millrace_cli", "serve", *self.flags),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                # ^C reaches the command only, which stops the brokers one after the other.
                start_new_session=True,
            )
        self._watching = asyncio.create_task(
            self._watch(self._process), name=f"broker-{self.node_id}"
        )

    async def ready(self) -> bool:
        """Whether the broker accepts clients; False when its process has ended instead."""
        ready = asyncio.create_task(self._is_ready.wait())
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            ended.cancel()
        return not self._ended.is_set()

    async def stop(self, *, within_s: float) -> bool:
        """Has the broker hand over and end; kills it after `within_s`. Whether it ended itself."""
        self._is_stopping = True
        if not self.is_running:
            return True
        try:
            self._signal(signal.SIGTERM)
            async with asyncio.timeout(within_s):
                await self._ended.wait()
        except TimeoutError:
            await self.kill()
            return False
        return self.exit_code == 0

    async def kill(self) -> None:
        """Ends the process with SIGKILL; returns when it has ended."""
        self._is_stopping = True
        if self._watching is not None:
            self._signal(signal.SIGKILL)
            await asyncio.shield(self._watching)

    async def wait(self) -> None:
        """Returns when there is no process."""
        if self._process is not None:
            await self._ended.wait()

    def last_words(self) -> str:
        """The last line of the log file: why the process has ended."""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line.startswith(_READY):
                self._is_ready.set()
        await process.wait()
        self._ended.set()
        if not self._is_stopping:
            self._on_end(self)
