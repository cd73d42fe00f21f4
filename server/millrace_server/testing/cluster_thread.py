"""A cluster on an event loop in a thread, for code that has no loop of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millrace_server.testing.cluster import BROKERS, Cluster
from millrace_server.testing.cluster_view import WAIT_S
from millrace_server.testing.loop_thread import LoopThread


class ClusterThread:
    """The same cluster as `Cluster`, for synchronous code; every method blocks until it is done."""

    def __init__(
        self, count: int = BROKERS, *, data: str | Path | None = None, **settings: Any
    ) -> None:
        self._cluster = Cluster(count, data=data, **settings)
        self._thread = LoopThread("millrace cluster")

    @property
    def servers(self) -> str:
        """HOST:PORT of every broker, as clients take it."""
        return self._cluster.servers

    @property
    def data(self) -> Path:
        """The directory with the brokers' directories."""
        return self._cluster.data

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that are running."""
        return self._cluster.running

    def start(self, *ids: int) -> None:
        """See `Cluster.start`."""
        self._thread.run(self._cluster.start(*ids))

    def stop(self, *ids: int) -> None:
        """See `Cluster.stop`."""
        self._thread.run(self._cluster.stop(*ids))

    def restart(self, broker_id: int) -> None:
        """See `Cluster.restart`."""
        self._thread.run(self._cluster.restart(broker_id))

    def kill(self, *ids: int) -> None:
        """See `Cluster.kill`."""
        self._thread.run(self._cluster.kill(*ids))

    def partition(self, one: int, other: int, *, one_way: bool = False) -> None:
        """See `Cluster.partition`."""
        self._call(lambda: self._cluster.partition(one, other, one_way=one_way))

    def isolate(self, broker_id: int) -> None:
        """See `Cluster.isolate`."""
        self._call(lambda: self._cluster.isolate(broker_id))

    def slow(self, one: int, other: int, delay_s: float, *, one_way: bool = False) -> None:
        """See `Cluster.slow`."""
        self._call(lambda: self._cluster.slow(one, other, delay_s, one_way=one_way))

    def skew_clock(self, broker_id: int, seconds: float) -> None:
        """See `Cluster.skew_clock`."""
        self._cluster.skew_clock(broker_id, seconds)

    def fill_disk(self, broker_id: int) -> None:
        """See `Cluster.fill_disk`."""
        self._cluster.fill_disk(broker_id)

    def heal(self) -> None:
        """See `Cluster.heal`."""
        self._call(self._cluster.heal)

    def controller(self, *, timeout_s: float = WAIT_S) -> int:
        """See `Cluster.controller`."""
        return self._thread.run(self._cluster.controller(timeout_s=timeout_s))

    def leader_of(self, topic: str, partition: int, *, timeout_s: float = WAIT_S) -> int:
        """See `Cluster.leader_of`."""
        return self._thread.run(self._cluster.leader_of(topic, partition, timeout_s=timeout_s))

    def wait_until_in_sync(self, topic: str | None = None, *, timeout_s: float = WAIT_S) -> None:
        """See `Cluster.wait_until_in_sync`."""
        self._thread.run(self._cluster.wait_until_in_sync(topic, timeout_s=timeout_s))

    def _call(self, change: Callable[[], None]) -> None:
        """Has a change made in the thread, to which the connections belong."""

        async def make() -> None:
            change()

        self._thread.run(make())

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._thread.run(self._cluster.__aenter__())
        except BaseException:
            self._thread.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._thread.run(self._cluster.__aexit__(None, None, None))
        finally:
            self._thread.end()
