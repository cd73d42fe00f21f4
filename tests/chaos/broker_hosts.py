"""Brokers as processes on hosts of their own: started, killed, paused, and asked who leads."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from millrace import Admin
from millrace.errors import MillraceError
from tests.chaos.host_network import HostNetwork, address

CLIENT_PORT = 9092
BROKER_PORT = 9093
POLL_S = 0.1


class BrokerHosts:
    """One broker of a cluster on each host, on the same data every time."""

    def __init__(self, network: HostNetwork, data: Path, *, brokers: int) -> None:
        self._network = network
        self._data = data
        self.ids = tuple(range(1, brokers + 1))
        self._processes: dict[int, Process] = {}

    @property
    def servers(self) -> str:
        """HOST:PORT of every broker."""
        return ",".join(f"{address(each)}:{CLIENT_PORT}" for each in self.ids)

    async def start(self, *ids: int) -> None:
        """Starts brokers; does not wait until they are in service."""
        quorum = ",".join(f"{each}@{address(each)}:{BROKER_PORT}" for each in self.ids)
        for broker_id in ids or self.ids:
            directory = self._data / f"broker-{broker_id}"
            settings = {
                "NODE_ID": str(broker_id),
                "QUORUM": quorum,
                "LISTEN": f"{address(broker_id)}:{CLIENT_PORT}",
                "INSECURE_LISTEN": "true",
                "LOG_LEVEL": "info",
                "DATA": str(directory),
            }
            environment = {f"MILLRACE_{name}": value for name, value in settings.items()}
            serve = (sys.executable, "-m", "millrace_cli", "serve")
            with directory.with_suffix(".log").open("ab") as log:
                self._processes[broker_id] = await asyncio.create_subprocess_exec(
                    *self._network.command(broker_id, *serve),
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **environment},
                )

    async def kill(self, *ids: int) -> None:
        """Ends brokers with SIGKILL, by default all, also those that are paused."""
        for broker_id in ids or self.ids:
            process = self._processes.pop(broker_id, None)
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()

    def pause(self, broker_id: int) -> None:
        """Stops the process with SIGSTOP: the host goes on to take packets for it."""
        self._processes[broker_id].send_signal(signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """Has the process go on; for it, no time has passed."""
        self._processes[broker_id].send_signal(signal.SIGCONT)

    def check_running(self) -> None:
        """Raises `RuntimeError` when a process has ended by itself."""
        for broker_id, process in self._processes.items():
            if process.returncode is not None:
                raise RuntimeError(
                    f"broker {broker_id} has ended with {process.returncode}: see its log in "
                    f"{self._data}"
                )

    async def leader(self, topic: str, partition: int) -> int:
        """The broker that leads a partition, as soon as there is one."""

        async def known(admin: Admin) -> int | None:
            (found,) = await admin.describe_topics([topic])
            return None if found.value is None else found.value.partitions[partition].leader

        return await self._until(known)

    async def controller(self) -> int:
        """The active controller, as soon as there is one."""

        async def known(admin: Admin) -> int | None:
            return (await admin.describe_quorum()).leader

        return await self._until(known)

    async def _until(self, known: Callable[[Admin], Awaitable[int | None]]) -> int:
        while True:
            with suppress(MillraceError):
                async with Admin(self.servers) as admin:
                    found = await known(admin)
                if found is not None:
                    return found
            await asyncio.sleep(POLL_S)
