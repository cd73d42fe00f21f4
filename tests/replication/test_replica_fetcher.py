"""The fetcher of one leader's partitions: every response is taken, whenever it comes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from millrace_protocol.messages.replica_fetch import ReplicaFetchRequest, ReplicaFetchResponse
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.log.epochs import EpochEnd
from millrace_server.machine import LoopSpawn, this_machine
from millrace_server.partitions.partition import Partition
from millrace_server.peers.calls import Channel
from millrace_server.replicas.log_view import PartitionLogView
from millrace_server.replicas.replica_fetcher import ReplicaFetcher
from millrace_server.replicas.wire_messages import encoded_result
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.fetch_session import REQUESTS_MAX
from millrace_server.replication.follower import PartitionFollower
from millrace_server.replication.messages import (
    BrokerKey,
    Diverging,
    FetchResult,
    OutOfRange,
    PartitionKey,
    Records,
)
from millrace_server.testing import Broker
from tests.broker.wire import batch, connect
from tests.replication.replica_log import ReplicaLog

TOPIC = uuid.UUID(int=1)


class Leader:
    """Implements `PeerCalls`: holds every fetch until the test answers it."""

    refusal: ApiError | None = None

    def __init__(self) -> None:
        self.fetches: list[asyncio.Future[ReplicaFetchResponse]] = []
        self._came = asyncio.Event()

    async def is_process_gone(self, broker_id: int) -> bool:
        return False

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

    async def saved() -> None:
        raise AssertionError("no record goes")

    fetcher = ReplicaFetcher(
        this_machine(tmp_path, spawn),
        leader,
        1,
        BrokerKey(2, 7),
        ReplicationConfig(),
        save_high_watermarks=saved,
        on_lost=lambda partition, error: None,
        on_failure=failures.append,
    )
    for number in range(REQUESTS_MAX):
        # No effect reaches it, because the leader has nothing to tell.
        fetcher.add(PartitionKey(TOPIC, number), cast("Partition", None), _follower_of_nothing())
        await leader.until_asked(number + 1)
        if not number:
            # No request overtakes the first of a connection.
            leader.fetches.pop().set_result(ReplicaFetchResponse(0, None, ()))
            await leader.until_asked(1)
    for fetch in leader.fetches:
        fetch.set_result(ReplicaFetchResponse(0, None, ()))
    # It asks again when no request is out, and so when it has taken both.
    await leader.until_asked(REQUESTS_MAX + 1)
    await fetcher.stop()
    spawn.close()
    assert failures == []


def _follower_of_nothing() -> PartitionFollower:
    log = ReplicaLog(is_synced=True)
    return PartitionFollower(log, leader_epoch=0, high_watermark=0, allows_loss=False)


class Following:
    """A partition of a running broker that follows a leader without what was committed here."""

    def __init__(self, broker: Broker, on_save: Callable[[Partition], Awaitable[None]]) -> None:
        self.partition = broker.node.broker.partitions.get("t", 0)
        self.leader = Leader()
        self.failures: list[BaseException] = []
        self.key = PartitionKey(TOPIC, 0)
        self._on_save = on_save
        self.fetcher = ReplicaFetcher(
            self.partition.env,
            self.leader,
            1,
            BrokerKey(2, 7),
            ReplicationConfig(),
            save_high_watermarks=lambda: on_save(self.partition),
            on_lost=lambda partition, error: None,
            on_failure=self.failures.append,
        )

    async def told(self, outcome: Diverging | OutOfRange) -> None:
        """The leader's first response."""
        await self.follow(self.key, self.partition)
        await self.answered({self.key: FetchResult(outcome)})

    async def follow(self, key: PartitionKey, partition: Partition) -> None:
        """The partition follows the leader from now on."""
        await partition.become_follower(6, leader_id=1)
        follower = PartitionFollower(
            PartitionLogView(partition),
            leader_epoch=6,
            high_watermark=partition.high_watermark,
            allows_loss=True,
        )
        self.fetcher.add(key, partition, follower)

    async def answered(self, results: dict[PartitionKey, FetchResult]) -> None:
        """The leader has got the first fetch, and answers it."""
        await self.leader.until_asked(1)
        encoded = tuple(encoded_result(key, result, b"") for key, result in results.items())
        self.leader.fetches[0].set_result(ReplicaFetchResponse(0, None, encoded))


@pytest.mark.parametrize("outcome", [Diverging(EpochEnd(0, 1)), OutOfRange(1)])
async def test_no_record_goes_before_the_lower_high_watermark_is_saved(
    tmp_path: Path, outcome: Diverging | OutOfRange
) -> None:
    saved: list[tuple[int, int]] = []

    async def save(partition: Partition) -> None:
        saved.append((partition.high_watermark, partition.end_offset))

    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t")
        for _ in range(3):
            await wire.produce("t", batch(b"committed"))
        following = Following(broker, save)
        await following.told(outcome)
        await following.leader.until_asked(2)
        assert saved == [(1, 3)]
        assert (following.partition.high_watermark, following.partition.end_offset) == (1, 1)
        await following.fetcher.stop()
    assert following.failures == []


@pytest.mark.parametrize("outcome", [Diverging(EpochEnd(0, 1)), OutOfRange(1)])
async def test_a_role_may_end_while_records_go(
    tmp_path: Path, outcome: Diverging | OutOfRange
) -> None:
    saving, may_go_on = asyncio.Event(), asyncio.Event()

    async def save(partition: Partition) -> None:
        saving.set()
        await may_go_on.wait()

    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t")
        for _ in range(3):
            await wire.produce("t", batch(b"committed"))
        following = Following(broker, save)
        await following.told(outcome)
        await saving.wait()
        removing = asyncio.ensure_future(following.fetcher.remove(following.key))
        await asyncio.sleep(0)
        may_go_on.set()
        await removing
        assert following.partition.end_offset == 1
        assert len(following.fetcher) == 0
        await following.fetcher.stop()
    assert following.failures == []


async def test_a_flush_may_end_while_records_of_another_partition_go(tmp_path: Path) -> None:
    saving, may_go_on = asyncio.Event(), asyncio.Event()

    async def save(partition: Partition) -> None:
        saving.set()
        await may_go_on.wait()

    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t", partitions=2)
        for number in (0, 1, 1, 1):
            await wire.produce("t", batch(b"committed"), partition=number)
        following = Following(broker, save)
        other, other_key = broker.node.broker.partitions.get("t", 1), PartitionKey(TOPIC, 1)
        other.lower_high_watermark(0)
        await following.follow(following.key, following.partition)
        await following.follow(other_key, other)
        await following.answered(
            {
                following.key: FetchResult(OutOfRange(0)),
                other_key: FetchResult(Records(3), high_watermark=3, log_start_offset=2),
            }
        )
        await saving.wait()
        following.fetcher.on_stored(other_key)
        may_go_on.set()
        await following.leader.until_asked(2)
        assert (other.start_offset, other.high_watermark) == (2, 3)
        await following.fetcher.stop()
    assert following.failures == []
