"""Faults of a cluster in a test: slow links, a wrong clock, a full disk; and their end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from millrace import Consumer, Producer
from millrace.errors import MillraceError
from millrace_server.testing import Cluster, ClusterProcesses, ClusterThread
from millrace_server.testing.delay_line import DelayLine
from tests.broker.wire import until
from tests.cluster.records import TOPIC, create_topic, numbers, read_all, send
from tests.cluster.settings import SETTINGS

HOUR_S = 3600


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(3, **SETTINGS) as running:
        await create_topic(running.servers, configs={"message.timestamp.type": "LogAppendTime"})
        await running.wait_until_in_sync(TOPIC)
        yield running


async def test_an_ack_of_all_replicas_takes_the_time_of_a_slow_link(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    async with Producer(cluster.servers) as producer:
        await send(producer, [b"0"])
        for other in set(cluster.brokers) - {leader}:
            cluster.slow(leader, other, 0.15)
        began_s = time.monotonic()
        await send(producer, numbers(1, 50))
        assert time.monotonic() - began_s >= 0.15
        cluster.heal()
        await send(producer, numbers(50, 100))
    await cluster.wait_until_in_sync(TOPIC)
    assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 100)


async def test_a_broker_stamps_records_with_its_own_clock_until_it_is_healed(
    cluster: Cluster,
) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    async with (
        Producer(cluster.servers) as producer,
        Consumer(cluster.servers, TOPIC) as consumer,
    ):
        cluster.skew_clock(leader, HOUR_S)
        await send(producer, [b"0"])
        ahead = (await consumer.getone()).timestamp_ms / 1000 - time.time()
        cluster.heal()
        await send(producer, [b"1"])
        healed = (await consumer.getone()).timestamp_ms / 1000 - time.time()
    assert HOUR_S / 2 < ahead <= HOUR_S + 1
    assert healed < HOUR_S / 2


async def test_a_full_disk_of_the_leader_refuses_records_until_there_is_room(
    cluster: Cluster,
) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    async with Producer(cluster.servers, delivery_timeout_ms=1_000) as impatient:
        await send(impatient, [b"0"])
        cluster.fill_disk(leader)
        with pytest.raises(MillraceError, match="disk is full"):
            await send(impatient, [b"lost"])
    async with Producer(cluster.servers) as producer:
        waiting = asyncio.create_task(send(producer, [b"1"]))
        cluster.heal()
        await waiting
    assert [value for _, value in (await read_all(cluster.servers))[0]] == [b"0", b"1"]


async def test_a_full_disk_of_a_follower_takes_it_out_of_the_isr(cluster: Cluster) -> None:
    leader, controller = await cluster.leader_of(TOPIC, 0), await cluster.controller()
    follower = min(set(cluster.brokers) - {leader, controller})

    def isr() -> tuple[int, ...]:
        return cluster.brokers[leader].node.broker.image.topics[TOPIC].partitions[0].isr

    cluster.fill_disk(follower)
    async with Producer(cluster.servers) as producer:
        await send(producer, numbers(0, 10))
        await until(lambda: follower not in isr())
        cluster.heal()
        await cluster.wait_until_in_sync(TOPIC)
    assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 10)


async def test_a_full_disk_of_the_controller_stops_no_ack(cluster: Cluster) -> None:
    """Another controller takes the broker out of the ISR; that broker does not learn of it."""
    controller = await cluster.controller()
    other = min(set(cluster.brokers) - {controller})

    def isr() -> tuple[int, ...]:
        return cluster.brokers[other].node.broker.image.topics[TOPIC].partitions[0].isr

    cluster.fill_disk(controller)
    async with Producer(cluster.servers) as producer:
        await send(producer, numbers(0, 10))
        await until(lambda: controller not in isr())
        cluster.heal()
        await cluster.wait_until_in_sync(TOPIC)
    assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 10)


def test_blocking_code_has_the_same_faults() -> None:
    with ClusterThread(1, **SETTINGS) as cluster:
        cluster.skew_clock(1, HOUR_S)
        cluster.fill_disk(1)
        cluster.heal()
        assert cluster.running == [1]


async def test_nothing_overtakes_what_is_on_its_way() -> None:
    arrived: list[bytes] = []
    line = DelayLine(arrived.append)
    line.send(b"0", 0.02)
    line.send(b"1", 0.0)
    assert line and not arrived
    await until(lambda: not line)
    assert arrived == [b"0", b"1"]
    line.send(b"2", HOUR_S)
    line.flush()
    assert arrived == [b"0", b"1", b"2"]
    line.send(b"3", HOUR_S)
    line.drop()
    assert not line and arrived == [b"0", b"1", b"2"]


async def test_a_fault_of_a_broker_that_is_not_there_is_refused(cluster: Cluster) -> None:
    faults: list[Callable[[], None]] = [
        lambda: cluster.partition(1, 9),
        lambda: cluster.isolate(9),
        lambda: cluster.slow(9, 1, 0.1),
        lambda: cluster.skew_clock(9, 1),
        lambda: cluster.fill_disk(9),
    ]
    for wrong in faults:
        with pytest.raises(ValueError, match="there is no broker 9; the cluster has 1, 2, 3"):
            wrong()
    for work in (cluster.start(9), cluster.stop(9), cluster.restart(9), cluster.kill(9)):
        with pytest.raises(ValueError, match="there is no broker 9; the cluster has 1, 2, 3"):
            await work
    with pytest.raises(ValueError, match="both are broker 1"):
        cluster.partition(1, 1)
    with pytest.raises(ValueError, match="at least 0 seconds, and not -1"):
        cluster.slow(1, 2, -1)
    assert cluster.running == [1, 2, 3]


async def test_a_start_of_brokers_that_all_run_ends_at_once(cluster: Cluster) -> None:
    await asyncio.wait_for(cluster.start(), 30)
    await cluster.kill()
    with pytest.raises(RuntimeError, match="no broker is running; start the cluster first"):
        await cluster.wait_until_in_sync()


async def test_a_fault_of_a_process_that_is_not_there_is_refused() -> None:
    cluster = ClusterProcesses(2)
    try:
        for wrong in (
            cluster.partition(1, 9),
            cluster.isolate(9),
            cluster.slow(2, 9, 0.1),
            cluster.fill_disk(9),
            cluster.kill(9),
            cluster.start(9),
        ):
            with pytest.raises(ValueError, match="there is no broker 9; the cluster has 1, 2"):
                await wrong
        with pytest.raises(ValueError, match="at least 0 seconds"):
            await cluster.slow(1, 2, -1)
        with pytest.raises(ValueError, match="there is no broker 9"):
            cluster.pause(9)
        with pytest.raises(RuntimeError, match="broker 1 is not running; start it first"):
            cluster.resume(1)
        with pytest.raises(RuntimeError, match="broker 1 is not running; start it first"):
            await cluster.kill(1)
    finally:
        cluster._layout.release()
