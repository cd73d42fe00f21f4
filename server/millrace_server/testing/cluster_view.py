"""What the brokers of a cluster say of it, asked as a client asks: leaders, ISRs, the controller.

Brokers that do not respond are left out: they are not running, or they are paused. Where brokers
contradict each other, the higher epoch is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from millrace_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from millrace_protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from millrace_server.testing.reserved_ports import HOST
from millrace_wire.connection import Connection, ConnectionConfig, connect
from millrace_wire.errors import RequestFailed

T = TypeVar("T")
CALL_TIMEOUT_MS = 5_000
LOOK_S = 0.02
"""Between two looks at what no broker announces."""
WAIT_S = 60.0
"""How long to wait for what a healthy cluster reaches in a few seconds."""


@dataclass(frozen=True, slots=True)
class BrokerView:
    """What one broker says."""

    broker_id: int
    metadata: MetadataResponse
    quorum: DescribeQuorumResponse

    def in_service(self) -> set[int]:
        """The ids of the brokers that are not fenced."""
        return {broker.node_id for broker in self.metadata.brokers}

    def partitions(self) -> Iterable[tuple[TopicMetadata, PartitionMetadata]]:
        """Every partition of every topic."""
        return ((t, p) for t in self.metadata.topics for p in t.partitions)


class ClusterView:
    """Asks the brokers on these ports of the loopback address, by broker id."""

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports

    async def controller(self, running: Collection[int], *, timeout_s: float = WAIT_S) -> int:
        """The broker that leads the metadata quorum. Raises `TimeoutError`."""

        def found(views: list[BrokerView]) -> int | None:
            newest = max(views, key=lambda view: view.quorum.leader_epoch)
            leaders = [view.broker_id for view in views if _leads(view, newest)]
            return leaders[0] if leaders else None

        return await self._until(running, found, "no broker leads the quorum", timeout_s)

    async def leader_of(
        self, running: Collection[int], topic: str, partition: int, *, timeout_s: float = WAIT_S
    ) -> int:
        """The broker that leads a partition, and knows that it does. Raises `TimeoutError`."""

        def found(views: list[BrokerView]) -> int | None:
            known = [
                (p.leader_epoch, p.leader_id, view.broker_id)
                for view in views
                for t, p in view.partitions()
                if (t.name, p.partition) == (topic, partition)
            ]
            epoch, leader_id, _ = max(known, default=(-1, -1, -1))
            return leader_id if (epoch, leader_id, leader_id) in known else None

        missing = f"no running broker leads {topic}-{partition}"
        return await self._until(running, found, missing, timeout_s)

    async def until_in_service(
        self, started: Collection[int], *, timeout_s: float = WAIT_S
    ) -> None:
        """Returns when each of these brokers knows that all of them are in service."""
        if not started:
            return

        def found(views: list[BrokerView]) -> bool | None:
            are_ready = [view for view in views if view.in_service() >= set(started)]
            return True if len(are_ready) == len(started) else None

        await self._until(started, found, f"not all in service of {[*started]}", timeout_s)

    async def until_in_sync(
        self, running: Collection[int], topic: str | None, *, timeout_s: float = WAIT_S
    ) -> None:
        """Returns when all running brokers are in service, and replicas on them in sync. Raises
        `RuntimeError` when no broker is running."""
        if not running:
            raise RuntimeError("no broker is running; start the cluster first")

        def found(views: list[BrokerView]) -> bool | None:
            is_all = {view.broker_id for view in views} == set(running)
            return True if is_all and all(_is_in_sync(v, running, topic) for v in views) else None

        await self._until(running, found, f"not all in sync of brokers {[*running]}", timeout_s)

    async def _until(
        self,
        running: Collection[int],
        found: Callable[[list[BrokerView]], T | None],
        missing: str,
        timeout_s: float,
    ) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    views = await asyncio.gather(*(self._ask(each) for each in running))
                    answered = [view for view in views if view is not None]
                    result = found(answered) if answered else None
                    if result is not None:
                        return result
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise TimeoutError(f"{missing}, after {timeout_s:g} s") from None

    async def _ask(self, broker_id: int) -> BrokerView | None:
        try:
            connection = await _connected(self._ports[broker_id])
        except RequestFailed:
            return None
        try:
            metadata = await connection.call(
                MetadataRequest(None), MetadataResponse, timeout_ms=CALL_TIMEOUT_MS
            )
            quorum = await connection.call(
                DescribeQuorumRequest(), DescribeQuorumResponse, timeout_ms=CALL_TIMEOUT_MS
            )
        except RequestFailed:
            return None
        finally:
            connection.close()
        return BrokerView(broker_id, metadata, quorum)


def _leads(view: BrokerView, newest: BrokerView) -> bool:
    quorum = view.quorum
    return (quorum.leader_id, quorum.leader_epoch) == (view.broker_id, newest.quorum.leader_epoch)


def _is_in_sync(view: BrokerView, running: Collection[int], topic: str | None) -> bool:
    if not view.in_service().issuperset(running):
        return False
    return all(
        partition.leader_id in running
        and set(partition.isr) >= set(partition.replicas) & set(running)
        for known, partition in view.partitions()
        if topic is None or known.name == topic
    )


async def _connected(port: int) -> Connection:
    config = ConnectionConfig(
        software="millrace-testing",
        software_version="0",
        client_id="cluster-view",
        connect_timeout_ms=CALL_TIMEOUT_MS,
        receive_bytes_max=64 << 20,
    )
    return await connect(asyncio.get_running_loop().create_connection, (HOST, port), config)
