"""Three brokers under test: processes of `millrace serve` on loopback that are one cluster.

Owns the processes and their CPU and memory. What the brokers say of the cluster is asked with
`millrace_server.testing`'s view.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from benchmarks.processes import ProcessFailed, child, process_cpu_s, resident_bytes
from benchmarks.session import Session
from benchmarks.wire import Address
from millrace.admin import Admin, NewTopic
from millrace_server.testing.cluster_layout import ClusterLayout
from millrace_server.testing.cluster_view import ClusterView
from millrace_server.testing.reserved_ports import HOST

BROKERS = 3
STOP_TIMEOUT_S = 60.0
REPLICATED = {"min.insync.replicas": "2"}


class RunningCluster:
    """Brokers 1 to `BROKERS`, all of them voters; each can be killed, stopped and started."""

    def __init__(
        self, session: Session, layout: ClusterLayout, settings: Mapping[str, str]
    ) -> None:
        """`settings` are MILLRACE_* variables beside those of every broker here."""
        self._session = session
        self._layout = layout
        self._settings = settings
        self._view = ClusterView(layout.ports)
        self._processes: dict[int, tuple[subprocess.Popen[str], ExitStack]] = {}

    @property
    def ids(self) -> Sequence[int]:
        """The ids of all brokers."""
        return self._layout.ids

    @property
    def servers(self) -> str:
        """HOST:PORT of every broker, as clients take it."""
        return self._layout.servers

    @property
    def pids(self) -> list[int]:
        """The processes of the brokers that run, in the order of their ids."""
        return [self._processes[each][0].pid for each in sorted(self._processes)]

    def address(self, broker_id: int) -> Address:
        """Where a broker listens for clients."""
        return HOST, self._layout.ports[broker_id]

    def cpu_s(self) -> list[float]:
        """CPU seconds of each broker that runs."""
        return [process_cpu_s(pid) for pid in self.pids]

    def resident_bytes(self) -> int:
        """Memory of all brokers."""
        return sum(resident_bytes(pid) for pid in self.pids)

    def start(self, *ids: int) -> None:
        """Starts brokers; returns when they are in service."""
        for broker_id in ids:
            stack = ExitStack()
            process = stack.enter_context(self._child(broker_id))
            self._processes[broker_id] = process, stack
        asyncio.run(self._view.until_in_service(ids, timeout_s=STOP_TIMEOUT_S))

    def kill(self, broker_id: int) -> None:
        """Ends a broker with SIGKILL; returns when its process is gone."""
        self._end(broker_id, signal.SIGKILL)

    def stop(self, broker_id: int) -> None:
        """Ends a broker with SIGTERM; its leaders move first."""
        self._end(broker_id, signal.SIGTERM)

    def close(self) -> None:
        """Kills what runs."""
        for broker_id in [*self._processes]:
            self.kill(broker_id)

    def controller(self) -> int:
        """The active controller."""
        return asyncio.run(self._view.controller(self._running))

    def leaders(self, topic: str, partitions: int) -> list[int]:
        """The leader of each partition."""

        async def ask() -> list[int]:
            return [
                await self._view.leader_of(self._running, topic, number)
                for number in range(partitions)
            ]

        return asyncio.run(ask())

    def wait_until_in_sync(self, topic: str | None = None) -> None:
        """Returns when all replicas on running brokers are in sync."""
        asyncio.run(self._view.until_in_sync(self._running, topic, timeout_s=STOP_TIMEOUT_S))

    def create_topics(
        self,
        names: Sequence[str],
        *,
        partitions: int,
        replication_factor: int = BROKERS,
        configs: Mapping[str, str] = REPLICATED,
    ) -> None:
        """Creates topics with one request; returns when they have leaders, all replicas in sync."""
        topics = [NewTopic(name, partitions, replication_factor, configs) for name in names]

        async def create() -> None:
            async with Admin(self.servers) as admin:
                for outcome in await admin.create_topics(topics):
                    if outcome.error is not None:
                        raise outcome.error

        asyncio.run(create())

    @property
    def _running(self) -> list[int]:
        return [*self._processes]

    def _child(self, broker_id: int) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
        layout, session = self._layout, self._session
        environment = {
            **session.checkout.environment,
            "MILLRACE_LOG_LEVEL": "error",
            "MILLRACE_LOG_FORMAT": "json",
            **self._settings,
            "MILLRACE_NODE_ID": str(broker_id),
            "MILLRACE_DATA": str(layout.directory(broker_id)),
            "MILLRACE_LISTEN": layout.server(broker_id),
            "MILLRACE_QUORUM": layout.quorum,
        }
        command = session.checkout.serve
        return child(command, log=session.log, environment=environment, talks=False)

    def _end(self, broker_id: int, number: signal.Signals) -> None:
        process, stack = self._processes.pop(broker_id)
        with stack:
            process.send_signal(number)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise ProcessFailed(f"broker {broker_id} did not stop") from None


@contextlib.contextmanager
def running_cluster(
    session: Session, name: str, *, settings: Mapping[str, str] | None = None
) -> Iterator[RunningCluster]:
    """Starts a cluster on the data directories below `name`, and kills it on leaving."""
    layout = ClusterLayout(BROKERS, session.directory / name)
    cluster = RunningCluster(session, layout, settings or {})
    try:
        cluster.start(*layout.ids)
        yield cluster
    finally:
        cluster.close()
        layout.release()
