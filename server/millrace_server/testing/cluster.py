"""A cluster of brokers in the event loop of a test, with what can happen to brokers and links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millrace_server.environment.seams import Clock, Environment
from millrace_server.machine import LoopSpawn, machine_of
from millrace_server.testing.broker import Broker
from millrace_server.testing.cluster_layout import ClusterLayout
from millrace_server.testing.cluster_view import WAIT_S, ClusterView
from millrace_server.testing.links import LinkedNet, Links
from millrace_server.testing.process_end import EndableDisk, EndableSpawn
from millrace_server.testing.reserved_ports import HOST

BROKERS = 3
OFFSETS_TOPIC_PARTITIONS = 3
"""So that each of three brokers coordinates groups."""


class Cluster:
    """`count` brokers with the ids 1 to `count`, all of them voters of the metadata quorum.

        async with Cluster(3) as cluster:
            async with Producer(cluster.servers, acks="all") as producer:
                await producer.send("flights", b"...")
                await cluster.kill(await cluster.leader_of("flights", 0))
                await producer.send("flights", b"...")

    Keyword arguments are settings of every broker, as for `Broker`. The brokers of a test share one
    event loop and its core, so the cluster shows what happens and not how fast it would be.
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
        self._links = Links({each: (HOST, port) for each, port in layout.broker_ports.items()})
        self._view = ClusterView(layout.ports)
        settings = {"offsets_topic_partitions": OFFSETS_TOPIC_PARTITIONS, **settings}
        self._brokers = {
            each: ClusterBroker(
                each,
                self._links,
                data=layout.directory(each),
                port=layout.ports[each],
                quorum=layout.quorum,
                **{"rack": rack, **settings},
            )
            for each, rack in zip(layout.ids, racks or [""] * count, strict=True)
        }

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers by id, running or not."""
        return self._brokers

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that are running."""
        return [each for each, broker in self._brokers.items() if broker.is_running]

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

        The first start of a cluster needs all its brokers, and every start a majority.
        """
        self._layout.check(*ids)
        chosen = ids or [each for each in self._brokers if each not in self.running]
        started = await asyncio.gather(
            *(self._brokers[each].start() for each in chosen), return_exceptions=True
        )
        errors = [each for each in started if isinstance(each, BaseException)]
        if errors:
            raise errors[0]
        await self._view.until_in_service(chosen)

    async def stop(self, *ids: int) -> None:
        """Shuts brokers down in order, by default all: leaders move to other brokers first."""
        self._layout.check(*ids)
        await asyncio.gather(*(self._brokers[each].stop() for each in ids or self._brokers))

    async def restart(self, broker_id: int) -> None:
        """Stops a broker in order, and starts it again on the same data and ports."""
        self._layout.check(broker_id)
        await self._brokers[broker_id].restart()

    async def kill(self, *ids: int) -> None:
        """Ends brokers as SIGKILL ends processes, all at the same moment, by default all.

        Their connections end and nothing more is written. What they had written is there when they
        are started again, in the midst of whatever it was.
        """
        self._layout.check(*ids)
        brokers = [self._brokers[each] for each in ids or self.running]
        for broker in brokers:
            broker.cut_off()
        await asyncio.gather(*(broker.take_apart() for broker in brokers))

    def partition(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Cuts the link between two brokers; with `one_way` only from `one` to `other`.

        Packets are lost, and connections last: each side waits for the other until its time limit.
        Clients reach both.
        """
        self._links.cut(self._layout.directions(one, other, one_way=one_way))

    def isolate(self, broker_id: int) -> None:
        """Cuts every link between a broker and the other brokers. Clients reach it."""
        self._links.cut(self._layout.directions_around(broker_id))

    def slow(self, one: int, other: int, delay_s: float, *, one_way: bool = False) -> None:
        """Has what two brokers send to each other arrive so much later; with `one_way` only what
        `one` sends. Clients reach both as before."""
        self._links.slow(self._layout.directions(one, other, one_way=one_way), delay_s)

    def skew_clock(self, broker_id: int, seconds: float) -> None:
        """Has a broker's wall clock jump to so far from this machine's, over restarts too.

        Deadlines and sessions follow another clock, which does not jump.
        """
        self._layout.check(broker_id)
        self._brokers[broker_id].skew_ms = round(seconds * 1000)

    def fill_disk(self, broker_id: int) -> None:
        """Has a broker find no room on its disk for anything, over restarts too."""
        self._layout.check(broker_id)
        self._brokers[broker_id].is_disk_full = True

    def heal(self) -> None:
        """Restores links, clocks and disks; what was sent meanwhile arrives."""
        self._links.heal()
        for broker in self._brokers.values():
            broker.skew_ms, broker.is_disk_full = 0, False

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
        self.heal()
        try:
            if self._layout.is_temporary:
                await self.kill()
            else:
                await self.stop()
        finally:
            self._layout.release()


def check_racks(racks: Sequence[str], count: int) -> None:
    """Raises `ValueError` unless there is a rack for each broker, or none."""
    if racks and len(racks) != count:
        raise ValueError(f"there are {len(racks)} racks for {count} brokers; give one for each")


class SkewedClock:
    """A clock of which the part for people is off by `skew_ms`. See `seams.Clock`."""

    def __init__(self, clock: Clock, skew_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._skew_ms = skew_ms
        self.monotonic_ms = clock.monotonic_ms
        self.monotonic_ns = clock.monotonic_ns

    def wall_ms(self) -> int:
        """See `seams.Clock`."""
        return self._clock.wall_ms() + self._skew_ms()


class ClusterBroker(Broker):
    """A broker of a `Cluster`: it can be killed, its links to other brokers cut or slow, its disk
    full and its clock wrong."""

    def __init__(self, broker_id: int, links: Links, **settings: Any) -> None:
        super().__init__(node_id=broker_id, **settings)
        self.skew_ms = 0
        self.is_disk_full = False
        self._links = links
        self._disk: EndableDisk
        self._net: LinkedNet
        self._tasks: EndableSpawn

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed."""
        return self._node is not None

    def cut_off(self) -> None:
        """The first part of a kill: from now on the broker can do nothing.

        Raises `RuntimeError` when it is not running.
        """
        node = self.node
        self._disk.end()
        self._net.end()
        for server in filter(None, (node.server, node.broker_server)):
            for connection in [*server.connections]:
                connection.abort("the process was killed")

    async def take_apart(self) -> None:
        """The second part: returns when nothing of the broker is left but its files."""
        node, self._node = self.node, None
        broker = node.broker
        try:
            await self._stop_monitoring()
            await self._tasks.end()
            for server in filter(None, (node.server, node.broker_server)):
                await server.drain(0)
            await node.peers.close()
            broker.replica_fetch.close()
            await broker.replicas.close()
            await broker.groups.stop()
            await broker.requests.close()
            await broker.metadata.close()
            for partition in [*broker.partitions]:
                await partition.abandon()
        finally:
            self._let_go()

    def _machine(self) -> tuple[LoopSpawn, Environment]:
        spawn = self._tasks = EndableSpawn()
        disk = self._disk = EndableDisk(self.data, lambda: self.is_disk_full)
        machine = machine_of(self.config, spawn)
        net = self._net = self._links.net(self.config.node_id, machine.net)
        clock = SkewedClock(machine.clock, lambda: self.skew_ms)
        return spawn, replace(machine, clock=clock, disk=disk, net=net)
