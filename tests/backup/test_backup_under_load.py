"""A backup that is taken under load, with retention, compaction and the end of a leader.

The history of the clients is judged by the checker of `tests/history`: what a restored broker gives
must be what a correct log could give that ends where the backup ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer
from millrace_server.testing import Broker, Cluster
from tests.backup.restored import backed_up, ends, file_bytes, restored
from tests.history.checker import check
from tests.history.operations import Acked, History, Sent, Unknown
from tests.history.recorded_clients import RecordedSends, read_all

TOPIC, KEYED, FLEETING, GROUP = "numbers", "keyed", "fleeting", "readers"
PARTITIONS = 3
SMALL: dict[str, str | int | None] = {"segment.bytes": 1 << 16}
COMPACTED: dict[str, str | int | None] = {
    **SMALL,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
}
SETTINGS: dict[str, Any] = {"housekeeping_interval_ms": 50}


class Load:
    """Clients of three topics: numbers, values of keys, and records that retention deletes."""

    def __init__(self, servers: str, producer: Producer[bytes, bytes]) -> None:
        self._servers = servers
        self._producer = producer
        self.history = History()
        self.sends = RecordedSends(producer, self.history, TOPIC, PARTITIONS, pause_s=0.001)
        self.committed: dict[int, int] = {}
        """Offsets that are committed durably, by partition."""
        self.keyed = -1
        """The last value of the key that is acked."""
        self._has_moved = asyncio.Event()
        self._is_over = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs all clients; on leaving, all that was sent is settled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sends.send_until_told())
            group.create_task(self._update())
            reading = group.create_task(self._read())
            yield
            self.sends.stop()
            self._is_over = True
            reading.cancel()

    async def moved(self, count: int) -> None:
        """Returns after `count` more updates, commits and acks each."""
        await self.sends.acked_more(1_000 * count)
        keyed, committed = self.keyed + count, sum(self.committed.values())
        while self.keyed < keyed or sum(self.committed.values()) <= committed:
            self._has_moved.clear()
            await self._has_moved.wait()

    async def _update(self) -> None:
        value = 0
        while not self._is_over:
            updates = [self._producer.send(KEYED, b"%d" % value, key=b"key", partition=0)]
            updates += [self._producer.send(FLEETING, bytes(1_000), partition=0) for _ in range(20)]
            for update in updates:
                await update
            self.keyed = value
            self._has_moved.set()
            value += 1

    async def _read(self) -> None:
        async with Consumer(self._servers, TOPIC, group=GROUP, auto_commit=False) as consumer:
            while True:
                records = await consumer.getmany()
                await consumer.commit()
                for record in records:
                    self.committed[record.partition] = record.offset + 1
                self._has_moved.set()


async def create_topics(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topic(TOPIC, partitions=PARTITIONS, configs=SMALL)
        await admin.create_topic(KEYED, partitions=1, configs=COMPACTED)
        fleeting: dict[str, str | int | None] = {**SMALL, "retention.bytes": 1 << 17}
        await admin.create_topic(FLEETING, partitions=1, configs=fleeting)


def history_until(history: History, until: dict[str, int]) -> History:
    """The history as far as a backup can know it: later acks count as never received."""
    cut, partitions = History(), dict[int, str]()
    for operation in history.operations:
        if isinstance(operation, Sent):
            partitions[operation.value] = operation.partition
        if isinstance(operation, Acked):
            is_later = operation.offset >= until[partitions[operation.value]]
            cut.add(Unknown(operation.value) if is_later else operation)
        else:
            cut.add(operation)
    return cut


async def check_restored(
    data: Path, load: Load, until: dict[str, int], committed: dict[int, int], keyed: int
) -> None:
    """A broker on `data` has a history without anomalies, and the commits and keys of before."""
    history = history_until(load.history, until)
    async with Broker(data=data) as broker:
        await read_all(broker.servers, TOPIC, history)
        report = check(history)
        assert report.is_valid, str(report)
        async with Admin(broker.servers) as admin:
            found = await admin.list_group_offsets(GROUP)
        for where, offset in found.items():
            assert committed.get(where.partition, 0) <= offset.offset <= until[str(where)]
        assert len(found) >= len(committed)
        async with Consumer(broker.servers, KEYED, start="earliest") as consumer:
            end = until[f"{KEYED}-0"]
            value = -1
            while await consumer.position((KEYED, 0)) < end:
                for record in await consumer.getmany():
                    value = int(record.value or b"")
        assert value >= keyed
        # Ids of the old producers are not given out again, and new records follow the old ones.
        async with Producer(broker.servers) as producer:
            receipt = await producer.send(TOPIC, b"-1", partition=0)
        assert receipt.offset == until[f"{TOPIC}-0"]


@pytest.mark.parametrize("brokers", [1, 3])
async def test_a_backup_under_load_is_restored_up_to_its_offsets(
    tmp_path: Path, brokers: int
) -> None:
    cluster: Broker | Cluster
    cluster = Broker(**SETTINGS) if brokers == 1 else Cluster(brokers, **SETTINGS)
    root, acked = tmp_path / "backup", dict[str, int]()
    async with cluster:
        await create_topics(cluster.servers)
        async with Producer(cluster.servers, acks="all") as producer:
            load = Load(cluster.servers, producer)
            async with load.running():
                await load.moved(20)
                for run in range(3):
                    acked = last_acks(load.history)
                    committed, keyed = dict(load.committed), load.keyed
                    if isinstance(cluster, Cluster) and run == 1:
                        await cluster.kill(await cluster.leader_of(TOPIC, 0))
                    result = await backed_up(root, cluster.servers)
                    until = ends(result.backup)
                    assert all(until[where] > offset for where, offset in acked.items())
                    await load.moved(5)
    (fleeting,) = (topic for topic in result.backup.topics if topic.name == FLEETING)
    assert fleeting.partitions[0].start_offset > 0
    await restored(root, tmp_path / "data")
    await check_restored(tmp_path / "data", load, until, committed, keyed)


def last_acks(history: History) -> dict[str, int]:
    """The highest offset that is acked in each partition."""
    partitions, last = dict[int, str](), dict[str, int]()
    for operation in history.operations:
        if isinstance(operation, Acked):
            where = partitions[operation.value]
            last[where] = max(operation.offset, last.get(where, -1))
        elif isinstance(operation, Sent):
            partitions[operation.value] = operation.partition
    return last


async def test_a_second_backup_copies_only_what_is_new(tmp_path: Path) -> None:
    root = tmp_path / "backup"
    async with Broker() as broker:
        await create_topics(broker.servers)
        async with Producer(broker.servers) as producer:
            for number in range(300):
                await producer.send(TOPIC, b"%d" % number * 100, partition=number % 2)
        first = await backed_up(root, broker.servers)
        before = file_bytes(root)
        assert first.copied_bytes == sum(map(len, before.values())) == first.backup.size_bytes
        async with Producer(broker.servers) as producer:
            await producer.send(TOPIC, b"new", partition=1)
        second = await backed_up(root, broker.servers)
        after = file_bytes(root)
        (added,) = after.keys() - before.keys()
        assert {name: after[name] for name in before} == before
        assert (second.copied_files, second.copied_bytes) == (1, len(after[added]))
        log = (broker.data / f"{TOPIC}-1" / "00000000000000000000.log").read_bytes()
        copied = b"".join(after[n] for n in sorted(after) if after[n] in log)
        assert log.startswith(copied) and not log[len(copied) :].strip(b"\0")
        third = await backed_up(root, broker.servers)
        assert (third.copied_files, third.copied_bytes) == (0, 0)
        assert file_bytes(root) == after
