"""The fetcher of one leader's partitions: every response is taken, whenever it comes."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any, cast

from millrace_protocol.messages.replica_fetch import ReplicaFetchRequest, ReplicaFetchResponse
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.machine import LoopSpawn, this_machine
from millrace_server.partitions.partition import Partition
from millrace_server.peers.calls import Channel
from millrace_server.replicas.replica_fetcher import ReplicaFetcher
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.fetch_session import REQUESTS_MAX
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.messages import BrokerKey, PartitionKey
from tests.replication.replica_log import ReplicaLog

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
        follower = PartitionFollower(
            ReplicaLog(is_synced=True), leader_epoch=0, high_watermark=0, allows_loss=False
        )
        # No effect reaches it, because the leader has nothing to tell.
        fetcher.add(PartitionKey(TOPIC, number), cast("Partition", None), follower)
        await leader.until_asked(number + 1)
    for fetch in leader.fetches:
        fetch.set_result(ReplicaFetchResponse(0, None, ()))
    # It asks again when no request is out, and so when it has taken both.
    await leader.until_asked(REQUESTS_MAX + 1)
    await fetcher.stop()
    spawn.close()
    assert failures == []
