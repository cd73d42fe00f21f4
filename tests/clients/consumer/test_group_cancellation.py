"""Calls of a consumer in a group that are cancelled, at every point, and consumers that idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer, TopicPartition
from millrace_server.testing import Broker, BrokerThread
from tests.clients.watching import Watch
from tests.hang_timeout import HANG_TIMEOUT_S

ONE = TopicPartition("one", 0)
QUICK: dict[str, Any] = {
    "group": "g",
    "heartbeat_interval_ms": 20,
    "session_timeout_ms": 10_000,
    "fetch_max_wait_ms": 50,
}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        async with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
            await admin.create_topic("one", partitions=1)
            await producer.send_many("one", [b"%d" % number for number in range(500)])
        yield broker


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    watch = Watch()
    yield watch
    await watch.end()


@pytest.fixture
def far_broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        yield broker


async def cancelled(work: Coroutine[Any, Any, Any], steps: int) -> bool:
    """Cancels work after so many passes of the loop; False if it was done before."""
    task = asyncio.create_task(work)
    for _ in range(steps):
        await asyncio.sleep(0)
        if task.done():
            break
    was_cancelled = task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return was_cancelled


async def test_a_commit_that_is_cancelled_harms_no_later_one(broker: Broker, watch: Watch) -> None:
    consumer = watch.add(Consumer(broker.servers, "one", **{**QUICK, "auto_commit": False}))
    async with consumer, asyncio.timeout(HANG_TIMEOUT_S):
        await watch.settled(consumer, partitions=1)
        steps = 0
        while await cancelled(consumer.commit({ONE: 100 + steps}), steps):
            assert (await consumer.commit({ONE: steps}))[ONE].is_committed
            found = (await consumer.committed())[ONE]
            assert found is not None and found.offset == steps
            steps += 1
        assert steps > 3


async def test_taking_records_in_a_group_may_be_cancelled_anywhere(
    broker: Broker, watch: Watch
) -> None:
    got: list[int] = []
    consumer = watch.add(Consumer(broker.servers, "one", **QUICK, max_partition_bytes=2_000))
    async with consumer, asyncio.timeout(HANG_TIMEOUT_S):
        steps = 0
        while len(got) < 500:
            task = asyncio.create_task(consumer.getone())
            for _ in range(steps % 9):
                await asyncio.sleep(0)
            steps += 1
            task.cancel()
            try:
                got.append((await task).offset)
            except asyncio.CancelledError:
                got += [record.offset for record in await consumer.getmany(5)]
    assert got == list(range(500))


async def test_a_close_that_is_cancelled_closes_all_the_same(broker: Broker, watch: Watch) -> None:
    steps, goes_on = 0, True
    async with asyncio.timeout(HANG_TIMEOUT_S):
        while goes_on:
            before = asyncio.all_tasks()
            consumer = Consumer(broker.servers, "one", **{**QUICK, "group": f"g{steps}"})
            await consumer.start()
            await consumer.getone()
            goes_on = await cancelled(consumer.close(), steps)
            await consumer.close()
            left = {task for task in asyncio.all_tasks() - before if "millrace" in task.get_name()}
            assert not left
            steps += 3
    assert steps > 9


async def test_a_start_that_is_cancelled_leaves_nothing_behind(broker: Broker) -> None:
    steps, goes_on = 0, True
    async with asyncio.timeout(HANG_TIMEOUT_S):
        while goes_on:
            before = asyncio.all_tasks()
            consumer = Consumer(broker.servers, "one", **QUICK)
            goes_on = await cancelled(consumer.start(), steps)
            await consumer.close()
            left = {task for task in asyncio.all_tasks() - before if "millrace" in task.get_name()}
            assert not left
            steps += 1
    assert steps > 3


async def test_an_idle_member_wakes_for_heartbeats_and_long_polls_alone(
    far_broker: BrokerThread, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Admin(far_broker.servers) as admin:
        await admin.create_topic("idle", partitions=4)
    options = {**QUICK, "heartbeat_interval_ms": 50, "fetch_max_wait_ms": 100}
    consumer = watch.add(Consumer(far_broker.servers, "idle", **options))
    async with consumer:
        await watch.settled(consumer, partitions=4)
        loop: Any = asyncio.get_running_loop()
        membership = consumer._group._membership  # type: ignore[union-attr]
        on_heard, on_fetched = membership.on_heard, consumer._positions.on_fetched
        run_once = loop._run_once
        counts = {"passes": 0, "heartbeats": 0, "polls": 0}
        enough = asyncio.Event()

        def counted_pass() -> None:
            counts["passes"] += 1
            run_once()

        def counted_heartbeat(*arguments: Any) -> Any:
            counts["heartbeats"] += 1
            if counts["heartbeats"] >= 20:
                enough.set()
            return on_heard(*arguments)

        def counted_poll(*arguments: Any) -> Any:
            counts["polls"] += 1
            return on_fetched(*arguments)

        waiting = asyncio.create_task(consumer.getone())
        monkeypatch.setattr(membership, "on_heard", counted_heartbeat)
        monkeypatch.setattr(consumer._positions, "on_fetched", counted_poll)
        monkeypatch.setattr(loop, "_run_once", counted_pass)
        async with asyncio.timeout(HANG_TIMEOUT_S):
            await enough.wait()
        waiting.cancel()
        assert counts["polls"] >= 2
        # A timer, a request, an answer, and the steps between them.
        assert counts["passes"] <= 10 * (counts["heartbeats"] + counts["polls"]), counts
