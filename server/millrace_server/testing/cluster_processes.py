"""A cluster of brokers that are processes: what a machine with three of them has."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millrace_server.testing.broker_process import BrokerProcess, Command
from millrace_server.testing.cluster import BROKERS, check_racks
from millrace_server.testing.cluster_layout import ClusterLayout
from millrace_server.testing.cluster_view import WAIT_S, ClusterView
from millrace_server.testing.links import check_delay
from millrace_server.testing.reserved_ports import HOST


class ClusterProcesses:
    """`count` processes of `millrace serve`, with the ids 1 to `count`, all of them voters.

        async with ClusterProcesses(3) as cluster:
            leader = await cluster.leader_of("flights", 0)
            cluster.pause(leader)
            ...
            cluster.resume(leader)

    Keyword arguments are settings of every broker, as for `millrace serve`; `log_level` is "error"
    unless given. The brokers write their log lines to this process' stderr.

    A fault is there when its call returns. One that is paused has it when it goes on.
    """

    def __init__(
        self,
        count: int = BROKERS,
        *,
        data: str | Path | None = None,
        racks: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        """`data` holds a directory for each broker; without it they are temporary. `racks` has the
        rack of each broker, or none."""
        check_racks(racks, count)
        self._layout = layout = ClusterLayout(count, data)
        self._racks = dict(zip(layout.ids, racks or [""] * count, strict=True))
        self._view = ClusterView(layout.ports)
        self._settings = {"log_level": "error", **settings}
        self._processes: dict[int, BrokerProcess] = {}
        self._link_faults: list[Command] = []
        self._machine_faults: dict[int, Command] = {}

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that are running and not paused."""
        return [each for each, process in self._processes.items() if not process.is_paused]

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
        self._layout.check(*ids)
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
        self._running(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Has a process go on that was paused; for it, no time has passed."""
        self._running(broker_id).resume()

    async def partition(self, one: int, other: int, *, one_way: bool = False) -> None:
        """See `Cluster.partition`."""
        await self._fault_links({"cut": self._layout.directions(one, other, one_way=one_way)})

    async def isolate(self, broker_id: int) -> None:
        """See `Cluster.isolate`."""
        await self._fault_links({"cut": self._layout.directions_around(broker_id)})

    async def slow(self, one: int, other: int, delay_s: float, *, one_way: bool = False) -> None:
        """See `Cluster.slow`."""
        directions = self._layout.directions(one, other, one_way=one_way)
        check_delay(delay_s)
        await self._fault_links({"slow": directions, "delay_s": float(delay_s)})

    async def skew_clock(self, broker_id: int, seconds: float) -> None:
        """See `Cluster.skew_clock`."""
        await self._fault_machine(broker_id, "skew_ms", round(seconds * 1000))

    async def fill_disk(self, broker_id: int) -> None:
        """See `Cluster.fill_disk`."""
        await self._fault_machine(broker_id, "is_disk_full", True)

    async def heal(self) -> None:
        """See `Cluster.heal`."""
        self._link_faults.clear()
        self._machine_faults.clear()
        await self._command({"heal": []}, {"skew_ms": 0}, {"is_disk_full": False})

    async def _fault_links(self, command: Command) -> None:
        self._link_faults.append(command)
        await self._command(command)

    async def _fault_machine(self, broker_id: int, name: str, value: object) -> None:
        self._layout.check(broker_id)
        self._machine_faults.setdefault(broker_id, {})[name] = value
        process = self._processes.get(broker_id)
        if process is not None:
            await process.command({name: value})

    async def _command(self, *commands: Command) -> None:
        await asyncio.gather(*(each.command(*commands) for each in self._processes.values()))

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
            "rack": self._racks[broker_id],
        }
        environment = {
            f"MILLRACE_{name.upper()}": str(value)
            for name, value in {**self._settings, **own}.items()
        }
        process = await BrokerProcess.start(environment)
        self._processes[broker_id] = process
        machine = self._machine_faults.get(broker_id, {})
        await process.command(
            *self._link_faults, *({name: value} for name, value in machine.items())
        )
        if not await process.is_listening():
            del self._processes[broker_id]
            code = await process.wait()
            raise RuntimeError(f"broker {broker_id} ended with {code}; see its log")

    async def _end(self, ids: tuple[int, ...], number: signal.Signals) -> None:
        ended = [(each, self._running(each)) for each in ids or [*self._processes]]
        for each, _ in ended:
            del self._processes[each]
        await asyncio.gather(*(process.end(number) for _, process in ended))

    def _running(self, broker_id: int) -> BrokerProcess:
        self._layout.check(broker_id)
        process = self._processes.get(broker_id)
        if process is None:
            raise RuntimeError(f"broker {broker_id} is not running; start it first")
        return process

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
