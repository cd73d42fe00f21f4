"""The cluster as test authors embed it: kills, cuts, threads, processes, the fixture."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from millrace import Admin, Producer
from millrace.config import ClientOptions
from millrace.sync import Producer as BlockingProducer
from millrace_server.testing import Cluster, ClusterProcesses, ClusterThread
from tests.broker.wire import open_files, until
from tests.cluster.records import TOPIC, create_topic, numbers, read_all, replica, send
from tests.cluster.settings import SETTINGS
from tests.hang_timeout import HANG_TIMEOUT_S

USERS_TEST = """
import socket

def ask(cluster, broker, lines):
    host, _, port = cluster.servers.split(",")[broker - 1].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as sock:
        sock.sendall(lines)
        return sock.makefile().read().splitlines()

def test_my_service(millrace_cluster):
    ask(millrace_cluster, 1, b"CREATE mine\\nQUIT\\n")
    leader = millrace_cluster.leader_of("mine", 0)
    answer = ask(millrace_cluster, leader, b"PRODUCE mine 0 hello\\nQUIT\\n")
    assert answer[0] == "OK mine-0 offset 0"
    millrace_cluster.kill(leader)
    assert millrace_cluster.leader_of("mine", 0) != leader
"""


async def test_nothing_is_left_of_a_cluster_whose_brokers_were_killed() -> None:
    async def cycle() -> Path:
        async with Cluster(3, **SETTINGS) as cluster:
            await create_topic(cluster.servers, partitions=3)
            async with Producer(cluster.servers) as producer:
                await send(producer, numbers(0, 100))
            await cluster.kill(2)
            return cluster.data

    await cycle()
    before, threads = open_files(), set(threading.enumerate())
    tasks = len(asyncio.all_tasks())
    directory = await cycle()
    await until(lambda: open_files() == before)
    assert not directory.exists()
    # The loop has threads of its own, which look up addresses.
    new = set(threading.enumerate()) - threads
    assert not [thread for thread in new if thread.name.startswith("millrace")]
    assert len(asyncio.all_tasks()) == tasks


async def test_a_kill_closes_nothing_in_order_and_logs_no_error(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await create_topic(cluster.servers)
    async with Producer(cluster.servers, linger_ms=0) as producer:
        deliveries = [producer.send(TOPIC, value) for value in numbers(0, 2_000)]
        await deliveries[0]
        leader = await cluster.leader_of(TOPIC, 0)
        data = cluster.brokers[leader].data
        files = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
        await cluster.kill(leader)
        assert not (data / "clean-shutdown").exists()
        assert files.keys() <= {path for path in data.rglob("*") if path.is_file()}
        await asyncio.gather(*deliveries)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    with pytest.raises(RuntimeError, match="not running"):
        await cluster.kill(leader)


async def test_a_link_that_is_cut_loses_no_connection_when_it_is_healed_in_time(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    leader = await cluster.leader_of(TOPIC, 0)
    follower = next(each for each in cluster.brokers if each != leader)
    async with Producer(cluster.servers, linger_ms=0) as producer:
        await send(producer, [b"0"])
        cluster.partition(leader, follower)
        delivery = producer.send(TOPIC, b"1")
        others = [each for each in cluster.brokers if each != follower]
        await until(lambda: {replica(cluster.brokers[n]).end_offset for n in others} == {2})
        assert replica(cluster.brokers[follower]).end_offset == 1
        assert not delivery.done()
        cluster.heal()
        assert (await delivery).offset == 1
    assert "leader not reached" not in caplog.text


async def test_data_that_was_given_a_place_is_there_for_the_next_cluster(tmp_path: Path) -> None:
    async with Cluster(3, data=tmp_path, drain_timeout_ms=1_000, **SETTINGS) as cluster:
        await create_topic(cluster.servers)
        async with Producer(cluster.servers) as producer:
            await send(producer, numbers(0, 10))
    async with Cluster(3, data=tmp_path, drain_timeout_ms=1_000, **SETTINGS) as cluster:
        assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 10)


def test_a_cluster_serves_code_that_blocks() -> None:
    with ClusterThread(**SETTINGS) as cluster:
        with BlockingProducer(cluster.servers) as producer:
            asyncio.run(create_topic(cluster.servers))
            producer.send(TOPIC, b"v")
            producer.flush()
            cluster.isolate(cluster.leader_of(TOPIC, 0))
            cluster.heal()
            cluster.kill(cluster.leader_of(TOPIC, 0))
            producer.send(TOPIC, b"w")
            producer.flush()
        cluster.start()
        cluster.wait_until_in_sync()
        assert cluster.running == [1, 2, 3]
        assert asyncio.run(read_all(cluster.servers)) == {0: [(0, b"v"), (1, b"w")]}


def test_a_users_test_gets_a_cluster_from_the_fixture(tmp_path: Path) -> None:
    test = tmp_path / "test_service.py"
    test.write_text(USERS_TEST)
    options = ("-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(test)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_processes_are_killed_paused_and_go_on() -> None:
    async with ClusterProcesses(3, **SETTINGS) as cluster:
        await create_topic(cluster.servers, partitions=3)
        # A process that is paused takes connections, and does not respond.
        limits: ClientOptions = {"request_timeout_ms": 1_000, "connect_timeout_ms": 1_000}
        async with Producer(cluster.servers, **limits) as producer:
            await send(producer, numbers(0, 10))
            await cluster.wait_until_in_sync()
            killed = await cluster.leader_of(TOPIC, 0)
            await cluster.kill(killed)
            await send(producer, numbers(10, 20))
            await cluster.start(killed)
            await cluster.wait_until_in_sync()
            paused = await cluster.leader_of(TOPIC, 0)
            cluster.pause(paused)
            await send(producer, numbers(20, 30))
            cluster.resume(paused)
            await cluster.wait_until_in_sync()
        assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 30)


async def test_processes_lose_their_network_their_clock_and_their_disk() -> None:
    racks = ("a", "b", "c")
    async with ClusterProcesses(3, racks=racks, **SETTINGS) as cluster:
        await create_topic(cluster.servers, partitions=1)
        # An isolated leader takes records, and cannot ack them.
        async with Producer(cluster.servers, request_timeout_ms=1_000) as producer:
            await send(producer, numbers(0, 10))
            await cluster.wait_until_in_sync()
            isolated = await cluster.leader_of(TOPIC, 0)
            await cluster.isolate(isolated)
            await send(producer, numbers(10, 20))
            assert await cluster.leader_of(TOPIC, 0) != isolated
            await cluster.heal()
            await cluster.wait_until_in_sync()

            leader = await cluster.leader_of(TOPIC, 0)
            full = next(each for each in cluster.running if each != leader)
            await cluster.fill_disk(full)
            await send(producer, numbers(20, 30))
            await cluster.heal()
            await cluster.wait_until_in_sync()

            late = await cluster.leader_of(TOPIC, 0)
            await cluster.skew_clock(late, -3_600)
            other = next(each for each in cluster.running if each != late)
            await cluster.slow(late, other, 0.05)
            await cluster.partition(other, late, one_way=True)
            await cluster.heal()
            await send(producer, numbers(30, 40))
        found = (await read_all(cluster.servers))[0]
        assert [value for _, value in found] == numbers(0, 40)


async def test_the_clock_of_a_process_stays_wrong_over_restarts() -> None:
    async with ClusterProcesses(1) as cluster:
        async with Admin(cluster.servers) as admin:
            await admin.create_topic(TOPIC, configs={"message.timestamp.type": "LogAppendTime"})
        await cluster.skew_clock(1, 86_400)
        await cluster.restart(1)
        async with Producer(cluster.servers) as producer:
            sent = await producer.send(TOPIC, b"tomorrow")
            assert sent.timestamp_ms > (time.time() + 80_000) * 1_000
            await cluster.heal()
            sent = await producer.send(TOPIC, b"today")
            assert sent.timestamp_ms < (time.time() + 80_000) * 1_000
