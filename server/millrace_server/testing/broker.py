"""A broker in the event loop of a test."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from millrace_server.config import BrokerConfig
from millrace_server.disk.cold_reads import PageCache
from millrace_server.disk.lock import DirectoryLock
from millrace_server.disk.os_disk import DIRECTORY_MODE
from millrace_server.environment.seams import Environment
from millrace_server.limits import Limits
from millrace_server.machine import LoopSpawn, machine_of
from millrace_server.monitoring.extra import monitoring_of
from millrace_server.node import Node
from millrace_server.statistics import Statistics

if TYPE_CHECKING:
    from millrace_server.monitoring.server import MonitoringServer

OFFSETS_TOPIC_PARTITIONS = 1
"""A test has few groups, and does not wait for fifty directories."""
LINGER_MS = 100
"""A client that is stopped later than its broker hears of the end at once on the same machine."""
START_WAIT_MS = 600_000
"""Tests want every partition to be there when the broker is."""


class Broker:
    """An embedded broker. May be stopped and started again on the same data and port.

    Keyword arguments are fields of `BrokerConfig`; `topic` takes defaults of topic settings, for
    example `topic={"durability": "os"}`. Unless they say otherwise, every partition is open when
    it has started, and a group's first member is assigned its partitions at once.
    """

    def __init__(self, *, data: str | Path | None = None, port: int = 0, **settings: Any) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="millrace-") if data is None else None
        directory = self._temporary.name if self._temporary is not None else str(data)
        config = BrokerConfig(
            data=directory,
            listen=f"127.0.0.1:{port}",
            start_wait_ms=START_WAIT_MS,
            offsets_topic_partitions=OFFSETS_TOPIC_PARTITIONS,
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=1,
            limits=Limits(linger_ms=LINGER_MS),
        )
        self.config = replace(config, **settings)
        self._node: Node | None = None
        self._spawn: LoopSpawn | None = None
        self._lock: DirectoryLock | None = None
        self._ports = {each.name: each.address[1] for each in self.config.listeners}
        self._monitoring: MonitoringServer | None = None
        self._metrics_address = self.config.metrics_address

    @property
    def data(self) -> Path:
        """The data directory."""
        return Path(self.config.data)

    @property
    def node(self) -> Node:
        """The running node, for tests that look inside. Raises `RuntimeError` when stopped."""
        if self._node is None:
            raise RuntimeError("the broker is not running; start it first")
        return self._node

    @property
    def port(self) -> int:
        """The TCP port of the first listener, the same after a restart."""
        return self._ports[self.config.listeners[0].name]

    @property
    def servers(self) -> str:
        """The address of the first listener, as clients take it: HOST:PORT."""
        return self.servers_of(self.config.listeners[0].name)

    def servers_of(self, listener: str) -> str:
        """The address of a listener of `listen`, as clients take it."""
        (found,) = (each for each in self.config.listeners if each.name == listener)
        scheme = "tls://" if found.is_tls else ""  # That of SASL is no part of an address.
        return f"{scheme}{found.address[0]}:{self._ports[listener]}"

    @property
    def metrics_url(self) -> str:
        """Where the broker answers HTTP, the same after a restart; it takes `metrics_listen`.

        Raises `RuntimeError` without that setting.
        """
        if self._metrics_address is None:
            raise RuntimeError("the broker has no metrics_listen; pass one, such as '127.0.0.1:0'")
        host, port = self._metrics_address
        return f"http://{host}:{port}"

    def statistics(self, prefix: str = "") -> Statistics:
        """What the broker has counted since it was started: `docs/statistics.md`.

            broker.statistics().value("millrace_requests_total", api="Produce")

        `prefix` selects metrics by name. Raises `RuntimeError` when the broker is stopped.
        """
        return self.node.broker.statistics.statistics(prefix)

    async def start(self) -> None:
        """Starts the broker on the running loop."""
        if self._node is not None:
            raise RuntimeError("the broker is running already")
        self.data.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self._lock = DirectoryLock(self.data)
        self._spawn, environment = self._machine()
        try:
            node = Node(
                replace(self.config, listen=self._listen),
                environment,
                cold_reads=PageCache(),
            )
            await self._start_monitoring(node)
            await node.start()
        except BaseException:
            await self._stop_monitoring()
            self._let_go()
            raise
        self._node = node
        self._ports = {name: port for name, (_, port) in node.addresses.items()}

    async def stop(self) -> None:
        """Shuts down in order; does nothing when it is stopped."""
        if self._node is None:
            return
        node, self._node = self._node, None
        try:
            await node.stop()
        finally:
            await self._stop_monitoring()
            self._let_go()

    async def restart(self) -> None:
        """Stops and starts on the same data and port; clients have to reconnect."""
        await self.stop()
        await self.start()

    @property
    def _listen(self) -> str:
        """`listen` with the ports that the broker had before."""
        return ", ".join(
            f"{each.name}={each.scheme}{each.address[0]}:{self._ports[each.name]}"
            for each in self.config.listeners
        )

    def _machine(self) -> tuple[LoopSpawn, Environment]:
        """What a start runs on."""
        spawn = LoopSpawn()
        return spawn, machine_of(self.config, spawn)

    async def _start_monitoring(self, node: Node) -> None:
        monitoring = monitoring_of(self.config)
        if monitoring is not None and self._metrics_address is not None:
            self._monitoring = monitoring(node)
            self._metrics_address = await self._monitoring.start(self._metrics_address)

    async def _stop_monitoring(self) -> None:
        if self._monitoring is not None:
            await self._monitoring.close()
            self._monitoring = None

    def _let_go(self) -> None:
        if self._spawn is not None:
            self._spawn.close()
            self._spawn = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self._clean_up()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.stop()
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
