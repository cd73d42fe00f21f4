"""Topics and records of a cluster's tests: made, sent, read, and compared between brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from millrace import Admin, Consumer, Producer
from millrace_server.partitions.partition import Partition
from millrace_server.testing import Broker, Cluster

TOPIC = "flights"
Records = dict[int, list[tuple[int, bytes]]]
"""(offset, value) of each partition."""


async def create_topic(
    servers: str, name: str = TOPIC, *, partitions: int = 1, min_isr: int = 2, **options: Any
) -> None:
    """A topic with as many replicas as there are brokers, up to three."""
    async with Admin(servers) as admin:
        configs = {"min.insync.replicas": str(min_isr), **options.pop("configs", {})}
        await admin.create_topic(name, partitions=partitions, configs=configs, **options)


async def send(
    producer: Producer[bytes, bytes], values: Iterable[bytes], *, partition: int = 0
) -> list[int]:
    """The offsets of records that are acked."""
    receipts = await asyncio.gather(
        *(producer.send(TOPIC, value, partition=partition) for value in values)
    )
    return [receipt.offset for receipt in receipts]


def numbers(first: int, end: int) -> list[bytes]:
    """Values that tell where a record is missing, double or out of order."""
    return [b"%d" % number for number in range(first, end)]


async def read_all(servers: str, topic: str = TOPIC) -> Records:
    """Everything that consumers may read now."""
    async with Consumer(servers, topic, start="earliest") as consumer:
        ends = {where.partition: end for where, end in (await consumer.end_offsets()).items()}
        found: Records = {partition: [] for partition in ends}
        while any(end > _read_to(found[partition]) for partition, end in ends.items()):
            for record in await consumer.getmany():
                found[record.partition].append((record.offset, record.value or b""))
        return found


def _read_to(records: list[tuple[int, bytes]]) -> int:
    return records[-1][0] + 1 if records else 0


def replica(broker: Broker, topic: str = TOPIC, partition: int = 0) -> Partition:
    """The replica of a running broker, whatever its role."""
    found = broker.node.broker.partitions.find(topic, partition)
    assert found is not None, f"broker {broker.config.node_id} has no {topic}-{partition}"
    return found


def log_bytes(broker: Broker, topic: str = TOPIC, partition: int = 0) -> bytes:
    """All batches of a replica, as they are in its segment files."""
    log = replica(broker, topic, partition).log
    parts: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        read = log.reader.read(offset, max_bytes=1 << 20, end_offset=log.end_offset)
        assert read.slice is not None
        parts.append(read.slice.read())
        read.slice.release()
        offset = read.next_offset
    return b"".join(parts)


def logs(cluster: Cluster, topic: str = TOPIC, partition: int = 0) -> set[bytes]:
    """The different contents that running replicas have."""
    return {log_bytes(cluster.brokers[each], topic, partition) for each in cluster.running}
