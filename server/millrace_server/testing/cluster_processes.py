"""A cluster of brokers that are processes: what a machine with three of them has."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millrace_server.testing.cluster import BROKERS
from millrace_server.testing.cluster_layout import ClusterLayout
from millrace_server.testing.cluster_view import WAIT_S, ClusterView
from millrace_server.testing.reserved_ports import HOST

LISTENING = b"listening on "
"""How the line begins that a broker writes when it takes connections."""


class ClusterProcesses:
    """`count` processes of `millrace serve`, with the ids 1 to `count`, all of them voters.

        async with ClusterProcesses(3) as cluster:
            leader = await cluster.leader_of("flights", 0)
            cluster.pause(leader)
            ...
            cluster.resume(leader)

    Keyword arguments are settings of every broker, as for `millrace serve`; `log_level` is "error"
    unless given. The brokers write their log lines to this process' stderr.
    """

    def __init__(
        self, count: int = BROKERS, *, data: str | Path | None = None, **settings: Any
    ) -> None:
        """`data` holds a directory for each broker; without it they are temporary."""
        self._layout = layout = ClusterLayout(count, data)
        self._view = ClusterView(layout.ports)
        self._settings = {"log_level": "error", **settings}
        self._processes: dict[int, Process] = {}
        self._paused: set[int] = set()

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that are running and not paused."""
        return [each for each in self._processes if each not in self._paused]

    @property
    def pids(self) -> Mapping[int, int]:
        """The process id of each broker that was started and not ended, paused or not."""
        return {each: process.pid for each, process in self._processes.items()}

    @property
    def servers(self) -> str:
        """HOST:PORT of every broker, as clients take it."""
        return self._layout.servers

    @property
    def data(self) -> Path:
        """The directory with the brokers' directories."""
        return self._layout.data

    async def start(self, *ids: int) -> None:
        """Starts brokers, by default all that are not running; returns when they are in service.

        The first start of a cluster needs all its brokers, and every start a majority. Raises
        `RuntimeError` when a process ends instead.
        """
        chosen = ids or [each for each in self._layout.ids if each not in self._processes]
        await asyncio.gather(*(self._start(each) for each in chosen))
        await self._view.until_in_service(chosen)

    async def stop(self, *ids: int) -> None:
        """Shuts brokers down in order with SIGTERM, by default all: leaders move first."""
        await self._end(ids, signal.SIGTERM)

    async def restart(self, broker_id: int) -> None:
        """Stops a broker in order, and starts it again on the same data and ports."""
        await self.stop(broker_id)
        await self.start(broker_id)

    async def kill(self, *ids: int) -> None:
        """Ends brokers with SIGKILL, by default all."""
        await self._end(ids, signal.SIGKILL)

    def pause(self, broker_id: int) -> None:
        """Stops a process with SIGSTOP: it keeps its connections and does nothing."""
        self._processes[broker_id].send_signal(signal.SIGSTOP)
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Has a process go on that was paused; for it, no time has passed."""
        self._paused.discard(broker_id)
        self._processes[broker_id].send_signal(signal.SIGCONT)

    async def controller(self, *, timeout_s: float = WAIT_S) -> int:
        """The id of the active controller, when there is one. Raises `TimeoutError`."""
        return await self._view.controller(self.running, timeout_s=timeout_s)

    async def leader_of(self, topic: str, partition: int, *, timeout_s: float = WAIT_S) -> int:
        """The id of the broker that leads a partition, when there is one. Raises `TimeoutError`."""
        return await self._view.leader_of(self.running, topic, partition, timeout_s=timeout_s)

    async def wait_until_in_sync(
        self, topic: str | None = None, *, timeout_s: float = WAIT_S
    ) -> None:
        """Returns when all brokers that are running are in service, and their replicas in sync.

        With `topic`, only its replicas count. Raises `TimeoutError`.
        """
        await self._view.until_in_sync(self.running, topic, timeout_s=timeout_s)

    async def _start(self, broker_id: int) -> None:
        layout = self._layout
        own: dict[str, object] = {
            "node_id": broker_id,
            "data": layout.directory(broker_id),
            "listen": f"{HOST}:{layout.ports[broker_id]}",
            "quorum": layout.quorum,
        }
        environment = {
            f"MILLRACE_{name.upper()}": str(value)
            for name, value in {**self._settings, **own}.items()
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "millrace_cli", "serve"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self._processes[broker_id] = process
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line.startswith(LISTENING):
            del self._processes[broker_id]
            raise RuntimeError(f"broker {broker_id} ended with {await process.wait()}; see its log")

    async def _end(self, ids: tuple[int, ...], number: signal.Signals) -> None:
        ended = {each: self._processes.pop(each) for each in ids or [*self._processes]}
        for broker_id, process in ended.items():
            process.send_signal(number)
            if broker_id in self._paused and number is not signal.SIGKILL:
                process.send_signal(signal.SIGCONT)
            self._paused.discard(broker_id)
        await asyncio.gather(*(process.communicate() for process in ended.values()))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        try:
            if self._layout.is_temporary:
                await self.kill()
            else:
                await self.stop()
        finally:
            self._layout.release()
