"""The runtime of coordinators, with counters as the shard, on real partitions and failing disks."""

from __future__ import annotations

import asyncio
import errno
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import encode_batch
from millrace_server.api_error import ApiError
from millrace_server.coordinator.loader import CHUNK_RECORDS
from millrace_server.coordinator.runtime import LOADS_MAX, CoordinatorRuntime
from millrace_server.environment.seams import Environment
from millrace_server.loop.completion import Completion
from millrace_server.node import Node
from millrace_server.partitions.partition import Partition
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import batch, connect, until
from tests.server.coordinator.counter import COUNTER_SERDE, CounterShard

T = TypeVar("T")
TOPIC = "counters"


class Counters:
    """A runtime of counters over the partitions of a broker; `shards` are all it has made."""

    def __init__(self, node: Node, env: Environment | None = None) -> None:
        self.node = node
        self.shards: list[CounterShard] = []
        self.runtime = CoordinatorRuntime(
            TOPIC,
            new_shard=self._new_shard,
            serde=COUNTER_SERDE,
            env=env or node.broker.env,
            scheduler=node.broker.scheduler,
        )

    def _new_shard(self) -> CounterShard:
        self.shards.append(CounterShard())
        return self.shards[-1]

    def partition(self, number: int = 0) -> Partition:
        return self.node.broker.partitions.get(TOPIC, number)

    def begin_load(self, number: int = 0, *, epoch: int = 0) -> asyncio.Task[None] | None:
        async def opened() -> Partition:
            return self.partition(number)

        return self.runtime.load(number, epoch, opened)

    async def load(self, number: int = 0, *, epoch: int = 0) -> None:
        load = self.begin_load(number, epoch=epoch)
        assert load is not None
        await load

    def add(self, name: str = "a", *, times: int = 1) -> Completion[Any]:
        return self.runtime.write(
            0, lambda shard, token, moment: shard.add(name, token, moment, times=times)
        )

    def wait(self, at_least: int, *, timeout_ms: int = 60_000) -> Completion[Any]:
        return self.runtime.write(
            0, lambda shard, token, moment: shard.wait("a", at_least, timeout_ms, token, moment)
        )

    def count(self, name: str = "a") -> int:
        return self.runtime.read(0, lambda shard: shard.counts.get(name, 0))

    def refused(self) -> ApiError:
        """The error that a request gets now."""
        with pytest.raises(ApiError) as refused:
            self.count()
        return refused.value


@asynccontextmanager
async def counters_on(
    data: Path, faults: Faults | None = None, *, partitions: int = 1
) -> AsyncIterator[Counters]:
    """Counters that are not loaded yet."""
    async with node_on(data, faults or Faults()) as node:
        if TOPIC not in node.broker.image.topics:
            async with connect(node.address[1]) as wire:
                await wire.create(TOPIC, partitions=partitions)
        counters = Counters(node)
        try:
            yield counters
        finally:
            counters.runtime.close()
            await counters.runtime.wait_closed()


def counted(name: bytes, value: bytes) -> bytes:
    """A batch of one record."""
    return bytes(encode_batch([value], keys=[name], timestamps_ms=1))


def code_of(completion: Completion[Any]) -> ErrorCode:
    error = completion.result()
    assert isinstance(error, ApiError), error
    return error.code


# Loading


async def test_a_shard_is_loaded_with_what_an_earlier_one_has_written(tmp_path: Path) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        assert [await counters.add(), await counters.add(), await counters.add("b")] == [1, 2, 1]
    async with counters_on(tmp_path) as counters:
        await counters.load()
        assert (counters.count("a"), counters.count("b")) == (2, 1)
        assert await counters.add() == 3


async def test_requests_are_refused_with_the_progress_until_the_shard_is_loaded(
    tmp_path: Path,
) -> None:
    async with counters_on(tmp_path) as counters:
        is_open = asyncio.Event()

        async def opened() -> Partition:
            await is_open.wait()
            return counters.partition()

        load = counters.runtime.load(0, 0, opened)
        assert load is not None
        for ask in (counters.add, counters.count, partial(counters.wait, 1)):
            with pytest.raises(ApiError, match=r"counters-0 is loading.*offset 0 of 0") as refused:
                ask()
            assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        is_open.set()
        await load
        assert await counters.add() == 1


async def test_a_load_lets_other_work_run_between_its_chunks(tmp_path: Path) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        await counters.add(times=5 * CHUNK_RECORDS)
        load = counters.begin_load(epoch=1)
        assert load is not None
        seen = set()
        while not load.done():
            await counters.node.broker.scheduler.yield_()
            seen.add(counters.shards[-1].counts.get("a"))
        assert seen >= {CHUNK_RECORDS * each for each in range(1, 6)}
        assert counters.count() == 5 * CHUNK_RECORDS


class HeldSpawn:
    """Blocking calls that wait until they are released."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.released = asyncio.Event()
        self.held = 0

    def task(self, work: Any, *, name: str) -> asyncio.Task[Any]:
        return self._env.spawn.task(work, name=name)

    def blocking(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.ensure_future(self._blocking(work, *args))

    async def _blocking(self, work: Callable[..., T], *args: Any) -> T:
        self.held += 1
        await self.released.wait()
        self.held -= 1
        return await self._env.spawn.blocking(work, *args)


async def test_few_partitions_are_read_at_once(tmp_path: Path) -> None:
    count = LOADS_MAX + 2
    async with counters_on(tmp_path, partitions=count) as counters:
        async with connect(counters.node.address[1]) as wire:
            for number in range(count):
                await wire.produce(TOPIC, counted(b"a", b"1"), partition=number)
        env = counters.node.broker.env
        spawn = HeldSpawn(env)
        slow = Counters(counters.node, replace(env, spawn=spawn))
        loads = [slow.begin_load(number) for number in range(count)]
        await until(lambda: spawn.held == LOADS_MAX)
        assert sum(shard.is_loaded for shard in slow.shards) == 0
        spawn.released.set()
        await asyncio.gather(*[load for load in loads if load is not None])
        assert all(shard.counts == {"a": 1} for shard in slow.shards)


async def test_a_record_of_a_newer_version_is_skipped_and_a_broken_one_ends_the_load(
    tmp_path: Path,
) -> None:
    async with counters_on(tmp_path) as counters, connect(counters.node.address[1]) as wire:
        await wire.produce(TOPIC, batch(b"without a key"))
        await wire.produce(TOPIC, counted(b"a", b"7"))
        await counters.load()
        assert counters.count() == 7
        await wire.produce(TOPIC, counted(b"a", b"seven"))
        await counters.load(epoch=1)
        error = counters.refused()
        assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "seven" in error.message
        assert "counters-0" in error.message


# Fencing by leader epoch


async def test_only_newer_epochs_load_and_unload(tmp_path: Path) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load(epoch=5)
        for stale in (0, 4, 5):
            assert counters.begin_load(epoch=stale) is None
            assert not counters.runtime.unload(0, stale)
        assert counters.count() == 0
        assert counters.runtime.unload(0, 6)
        assert counters.refused().code is ErrorCode.NOT_COORDINATOR
        assert counters.begin_load(epoch=6) is None
        await counters.load(epoch=7)
        assert counters.count() == 0
        assert [shard.is_unloaded for shard in counters.shards] == [True, False]


async def test_a_topic_that_is_created_anew_begins_its_epochs_anew(tmp_path: Path) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load(epoch=5)
        waiting = counters.wait(1)
        counters.runtime.unload_all()
        assert code_of(waiting) is ErrorCode.NOT_COORDINATOR
        await counters.load(epoch=0)
        assert await counters.add() == 1


async def test_a_shard_that_is_unloaded_while_it_loads_takes_nothing_of_the_load(
    tmp_path: Path,
) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        await counters.add()
        env = counters.node.broker.env
        spawn = HeldSpawn(env)
        slow = Counters(counters.node, replace(env, spawn=spawn))
        load = slow.begin_load()
        assert load is not None
        await until(lambda: spawn.held == 1)
        assert slow.runtime.unload(0, 1)
        spawn.released.set()
        await asyncio.wait([load])
        (shard,) = slow.shards
        assert (shard.counts, shard.is_loaded, shard.is_unloaded) == ({}, False, True)
        assert slow.refused().code is ErrorCode.NOT_COORDINATOR


async def test_a_shard_that_is_unloaded_while_it_appends_leaves_the_append_to_the_next(
    tmp_path: Path,
) -> None:
    faults = Faults()
    async with counters_on(tmp_path, faults) as counters:
        await counters.load()
        faults.may_sync.clear()
        adding, waiting = counters.add(), counters.wait(9)
        assert counters.runtime.unload(0, 1)
        assert code_of(adding) is code_of(waiting) is ErrorCode.NOT_COORDINATOR
        load = counters.begin_load(epoch=2)
        assert load is not None
        await counters.node.broker.scheduler.yield_()
        assert counters.refused().code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        faults.may_sync.set()
        await load
        assert counters.count() == 1, "the record was in the log, and is durable now"
        assert counters.shards[0].counts == {}, "an ended shard takes no result"


async def test_a_shard_of_an_older_epoch_of_its_partition_writes_nothing(tmp_path: Path) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        partition = counters.partition()
        await partition.become_follower(1, leader_id=7)
        assert code_of(counters.add()) is ErrorCode.NOT_COORDINATOR
        await partition.become_leader(2)
        stale = counters.add()
        assert code_of(stale) is ErrorCode.NOT_COORDINATOR
        assert "find the coordinator again" in stale.result().message
        assert partition.log.end_offset == 0
        await counters.load(epoch=2)
        assert await counters.add() == 1


async def test_an_append_that_waits_for_the_disk_is_refused_when_another_broker_leads(
    tmp_path: Path,
) -> None:
    faults = Faults()
    async with counters_on(tmp_path, faults) as counters:
        await counters.load()
        faults.may_sync.clear()
        adding, waiting = counters.add(), counters.wait(9)
        following = asyncio.ensure_future(counters.partition().become_follower(1, leader_id=7))
        assert isinstance(await adding, ApiError)
        assert code_of(adding) is code_of(waiting) is ErrorCode.NOT_COORDINATOR
        assert counters.refused().code is ErrorCode.NOT_COORDINATOR
        faults.may_sync.set()
        await following


# Appending


async def test_a_reply_follows_when_the_append_is_durable(tmp_path: Path) -> None:
    faults = Faults()
    async with counters_on(tmp_path, faults) as counters:
        await counters.load()
        faults.may_sync.clear()
        first, second = counters.add(), counters.add()
        await until(lambda: counters.partition().log.end_offset == 2)
        assert (first.done(), second.done(), counters.count()) == (False, False, 0)
        faults.may_sync.set()
        assert (await first, await second, counters.count()) == (1, 2, 2)


async def test_an_append_that_a_full_disk_refuses_is_an_error_and_the_next_may_succeed(
    tmp_path: Path,
) -> None:
    faults = Faults(where=TOPIC)
    async with counters_on(tmp_path, faults) as counters:
        await counters.load()
        assert await counters.add() == 1
        faults.errnos["write"] = errno.ENOSPC
        assert code_of(counters.add()) is ErrorCode.DISK_FULL
        assert counters.count() == 1
        faults.errnos.clear()
        assert await counters.add() == 2


async def test_a_disk_that_fails_ends_the_shard_with_all_that_waits(tmp_path: Path) -> None:
    faults = Faults(where=TOPIC)
    async with counters_on(tmp_path, faults) as counters:
        await counters.load()
        faults.may_sync.clear()
        waiting, first, second = counters.wait(9), counters.add(), counters.add()
        faults.errnos["sync"] = errno.EIO
        faults.may_sync.set()
        assert isinstance(await second, ApiError)
        for pending in (waiting, first, second):
            assert code_of(pending) is ErrorCode.NOT_COORDINATOR
        assert counters.refused().code is ErrorCode.NOT_COORDINATOR
        assert counters.shards[0].counts == {}
        await asyncio.wait([counters.node.broker.failed])


async def test_a_large_append_is_encoded_in_chunks_and_later_ones_stay_behind_it(
    tmp_path: Path,
) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        large = counters.add(times=10 * CHUNK_RECORDS)
        small = counters.add()
        assert counters.partition().log.end_offset == 0
        for _ in range(5):
            await counters.node.broker.scheduler.yield_()
        assert not large.done()
        assert await small == 10 * CHUNK_RECORDS + 1
        assert large.result() == 10 * CHUNK_RECORDS


async def test_a_large_append_that_is_not_encoded_yet_ends_with_its_shard(tmp_path: Path) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        large = counters.add(times=10 * CHUNK_RECORDS)
        counters.runtime.unload(0, 1)
        assert code_of(large) is ErrorCode.NOT_COORDINATOR
        await counters.load(epoch=2)
        assert counters.count() == 0


async def test_a_large_append_that_meets_a_bug_ends_the_shard(tmp_path: Path) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        waiting = counters.wait(1)
        broken = counters.add("\ud800", times=2 * CHUNK_RECORDS)
        assert isinstance(await broken, ApiError)
        assert code_of(broken) is code_of(waiting) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert counters.refused().code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_an_ended_shard_is_freed_when_its_appends_have_ended(tmp_path: Path) -> None:
    faults = Faults()
    async with counters_on(tmp_path, faults) as counters:
        await counters.load()
        faults.may_sync.clear()
        adding = counters.add()
        shard = weakref.ref(counters.shards.pop())
        gc.disable()
        try:
            counters.runtime.unload(0, 1)
            assert code_of(adding) is ErrorCode.NOT_COORDINATOR
            faults.may_sync.set()
            await until(lambda: shard() is None)
        finally:
            gc.enable()


# Replies and deadlines


async def test_a_request_waits_for_another_or_for_its_deadline(tmp_path: Path) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        waiting, short = counters.wait(2), counters.wait(2, timeout_ms=1)
        assert await short == 0
        await counters.add()
        assert not waiting.done()
        await counters.add()
        assert await waiting == 2


async def test_a_client_that_disconnects_does_not_hold_up_its_request(tmp_path: Path) -> None:
    faults = Faults()
    async with counters_on(tmp_path, faults) as counters:
        await counters.load()
        faults.may_sync.clear()
        gone = counters.add()
        gone.cancel()
        faults.may_sync.set()
        assert await counters.add() == 2
        assert counters.count() == 2


async def test_two_replies_to_one_request_are_a_bug_that_is_seen(tmp_path: Path) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        waiting = counters.wait(1)
        await counters.add()
        assert waiting.result() == 1
        counters.runtime.notify(0, lambda shard, moment: shard.wait("a", 2, -1, waiting, moment))
        with pytest.raises(KeyError):
            counters.runtime.notify(0, lambda shard, moment: shard.on_deadline(moment))


async def test_a_runtime_that_is_closed_answers_what_waits_and_all_that_comes(
    tmp_path: Path,
) -> None:
    async with counters_on(tmp_path) as counters:
        await counters.load()
        waiting = counters.wait(1)
        counters.runtime.close()
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert code_of(waiting) is unavailable
        assert counters.refused().code is unavailable
        assert counters.begin_load(epoch=1) is None
        with pytest.raises(ApiError):
            counters.runtime.read_all(lambda shard: shard.counts)
