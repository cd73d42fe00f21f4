"""The fetcher of one leader's partitions: every response is taken, whenever it comes."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any, cast

import pytest

from millrace_protocol.messages.replica_fetch import (
    ReplicaFetchPartitionResult,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.machine import LoopSpawn, this_machine
from millrace_server.partitions.partition import Partition
from millrace_server.peers.calls import Channel
from millrace_server.replicas import replica_fetcher
from millrace_server.replicas.replica_fetcher import ReplicaFetcher
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.fetch_session import REQUESTS_MAX
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.messages import BrokerKey, PartitionKey
from tests.replication.replica_log import Entry, ReplicaLog

TOPIC = uuid.UUID(int=1)


class Leader:
    """Implements `PeerCalls`: holds every fetch until the test answers it."""

    refusal: ApiError | None = None

    def __init__(self) -> None:
        self.fetches: list[asyncio.Future[ReplicaFetchResponse]] = []
        self._came = asyncio.Event()

    async def call(
        self,
        broker_id: int,
        channel: Channel,
        request: Message,
        response: type[Any],
        *,
        timeout_ms: int,
    ) -> Any:
        assert isinstance(request, ReplicaFetchRequest)
        self.fetches.append(asyncio.get_running_loop().create_future())
        self._came.set()
        return await self.fetches[-1]

    async def until_asked(self, count: int) -> None:
        """Returns when so many fetches have come in all."""
        while len(self.fetches) < count:
            self._came.clear()
            await self._came.wait()


class SlowPartition:
    """A partition whose truncation waits for the test."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()

    def lower_high_watermark(self, offset: int) -> None:
        """Nothing is committed."""


async def test_two_responses_at_once_are_both_taken(tmp_path: Path) -> None:
    spawn, leader = LoopSpawn(), Leader()
    failures: list[BaseException] = []
    fetcher = ReplicaFetcher(
        this_machine(tmp_path, spawn),
        leader,
        1,
        BrokerKey(2, 7),
        ReplicationConfig(),
        on_lost=lambda partition, error: None,
        on_failure=failures.append,
    )
    for number in range(REQUESTS_MAX):
        # No effect reaches it, because the leader has nothing to tell.
        fetcher.add(PartitionKey(TOPIC, number), cast("Partition", None), _follower_of_nothing())
        await leader.until_asked(number + 1)
    for fetch in leader.fetches:
        fetch.set_result(ReplicaFetchResponse(0, None, ()))
    # It asks again when no request is out, and so when it has taken both.
    await leader.until_asked(REQUESTS_MAX + 1)
    await fetcher.stop()
    spawn.close()
    assert failures == []


async def test_a_partition_may_be_removed_while_its_log_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def truncate_to(partition: SlowPartition, offset: int, *, now_ms: int) -> None:
        partition.began.set()
        await partition.may_end.wait()

    monkeypatch.setattr(replica_fetcher, "truncate_to", truncate_to)
    spawn, leader, key = LoopSpawn(), Leader(), PartitionKey(TOPIC, 0)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    fetcher = ReplicaFetcher(
        this_machine(tmp_path, spawn),
        leader,
        1,
        BrokerKey(2, 7),
        ReplicationConfig(),
        on_lost=lambda partition, error: None,
        on_failure=failed.set_exception,
    )
    log = ReplicaLog(is_synced=False)
    log.append(Entry(0, "a"))
    log.append(Entry(0, "b"))
    follower = PartitionFollower(log, leader_epoch=1, high_watermark=0, allows_loss=False)
    partition = SlowPartition()
    fetcher.add(key, cast("Partition", partition), follower)
    await leader.until_asked(1)
    diverging = ReplicaFetchPartitionResult(*key, 0, None, -1, -1, 0, 1, b"")
    leader.fetches[0].set_result(ReplicaFetchResponse(0, None, (diverging,)))
    await partition.began.wait()
    removing = asyncio.ensure_future(fetcher.remove(key))
    await asyncio.sleep(0)
    partition.may_end.set()
    await removing
    # The fetcher goes on.
    fetcher.add(PartitionKey(TOPIC, 1), cast("Partition", None), _follower_of_nothing())
    asked = asyncio.ensure_future(leader.until_asked(2))
    await asyncio.wait((asked, failed), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    await fetcher.stop()
    spawn.close()
    assert not failed.done()


def _follower_of_nothing() -> PartitionFollower:
    log = ReplicaLog(is_synced=True)
    return PartitionFollower(log, leader_epoch=0, high_watermark=0, allows_loss=False)
