"""The broker as test authors and applications embed it: start, stop, threads, the fixture."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from millrace_server.net.server import ListenError
from millrace_server.testing import Broker, BrokerThread
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import batch, connect, fetch_request, open_files, until, values_of
from tests.hang_timeout import HANG_TIMEOUT_S

USERS_TEST = """
import socket

def test_my_service(millrace_broker):
    host, _, port = millrace_broker.servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as sock:
        sock.sendall(b"CREATE mine\\nPRODUCE mine 0 hello\\nQUIT\\n")
        answer = sock.makefile().read()
    assert answer.splitlines()[1] == "OK mine-0 offset 0"

def test_the_next_one_gets_another(millrace_broker):
    host, _, port = millrace_broker.servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as sock:
        sock.sendall(b"TOPICS\\nQUIT\\n")
        assert sock.makefile().read().startswith("OK 0 topics")
"""


async def test_two_brokers_live_in_one_loop() -> None:
    async with Broker() as one, Broker() as other:
        assert one.port != other.port
        assert one.data != other.data
        async with connect(one.port) as first, connect(other.port) as second:
            await first.create("t")
            assert await first.topics() == ["t"]
            assert await second.topics() == []


async def test_nothing_is_left_of_a_broker_that_stopped() -> None:
    async def cycle() -> Path:
        async with Broker() as broker, connect(broker.port) as wire:
            await wire.create("t", partitions=5)
            await wire.produce("t", batch(b"v"), partition=3)
            await wire.fetch("t", 0, partition=3)
            return broker.data

    await cycle()
    before, threads = open_files(), set(threading.enumerate())
    tasks = len(asyncio.all_tasks())
    directory = await cycle()
    await until(lambda: open_files() == before)
    assert not list(directory.parent.glob(directory.name))
    assert set(threading.enumerate()) <= threads
    assert len(asyncio.all_tasks()) == tasks


async def test_a_broker_keeps_its_port_and_data_over_restarts(broker: Broker) -> None:
    port, data = broker.port, broker.data
    async with connect(port) as wire:
        await wire.create("t")
        for n in range(3):
            await wire.produce("t", batch(b"%d" % n))
    for _ in range(2):
        await broker.restart()
        assert (broker.port, broker.data) == (port, data)
        async with connect(port) as wire:
            assert values_of(await wire.fetch("t", 0)) == [b"0", b"1", b"2"]
    assert broker.servers == f"127.0.0.1:{port}"


async def test_starting_and_stopping_twice(broker: Broker) -> None:
    with pytest.raises(RuntimeError, match="running already"):
        await broker.start()
    await broker.stop()
    await broker.stop()
    with pytest.raises(RuntimeError, match="start it first"):
        broker.node  # noqa: B018
    await broker.start()
    async with connect(broker.port) as wire:
        assert await wire.topics() == []


async def test_a_port_that_is_taken_leaves_nothing_running(broker: Broker, tmp_path: Path) -> None:
    data = tmp_path / "other"
    before = open_files()
    other = Broker(data=data, port=broker.port)
    with pytest.raises(ListenError, match="another process"):
        await other.start()
    assert open_files() == before
    async with Broker(data=data) as third, connect(third.port) as wire:
        assert await wire.topics() == []


async def test_requests_in_flight_are_answered_before_a_broker_stops(tmp_path: Path) -> None:
    faults = Faults()
    async with node_on(tmp_path, faults, stop=False) as node:
        async with connect(node.address[1]) as wire:
            await wire.create("t")
            faults.may_sync.clear()
            entry = ProducePartition("t", 0, batch(b"in flight"))
            sent = [wire.send(ProduceRequest(-1, 60_000, (entry,))) for _ in range(10)]
            partition = node.broker.partitions.get("t", 0)
            await until(lambda: partition.log.end_offset == 10)
            stopping = asyncio.ensure_future(node.stop())
            await until(lambda: node.server._draining)
            assert not stopping.done()
            faults.may_sync.set()
            for n, correlation_id in enumerate(sent):
                response = await wire.answer(ProduceResponse, sent=correlation_id)
                assert (response.partitions[0].error_code, response.partitions[0].base_offset) == (
                    0,
                    n,
                )
            assert await wire.closed() == b""
        await stopping
    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        assert broker.node.broker.partitions.get("t", 0).log.recovery.is_clean
        assert values_of(await wire.fetch("t", 0)) == [b"in flight"] * 10


async def test_a_client_that_never_reads_does_not_hold_up_a_stop() -> None:
    async with Broker(drain_timeout_ms=50) as broker, connect(broker.port) as wire:
        await wire.create("t")
        for _ in range(8):
            await wire.produce("t", batch(b"x" * 1_000_000))
        wanted = [("t", 0, 0)]
        for _ in range(16):
            wire.send(fetch_request(wanted, max_bytes=1 << 26, partition_bytes=1 << 26))
        await until(lambda: next(iter(broker.node.server.connections)).bytes_out > 1_000)
        async with asyncio.timeout(HANG_TIMEOUT_S):
            await broker.stop()


def test_a_broker_in_a_thread_serves_code_without_a_loop() -> None:
    threads = set(threading.enumerate())
    with BrokerThread(partitions=3) as broker:
        assert broker.servers == f"127.0.0.1:{broker.port}"

        async def use() -> int:
            async with connect(broker.port) as wire:
                await wire.create("t", partitions=-1)
                return (await wire.produce("t", batch(b"v"), partition=2)).base_offset

        assert asyncio.run(use()) == 0
        directory = broker.data
        assert directory.exists()
    assert not directory.exists()
    assert set(threading.enumerate()) <= threads


def test_a_thread_whose_broker_cannot_start_ends(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with BrokerThread() as broker, pytest.raises(ListenError):
        BrokerThread(data=tmp_path, port=broker.port).__enter__()
    assert set(threading.enumerate()) <= threads


def test_every_pytest_run_has_the_fixture(tmp_path: Path) -> None:
    test = tmp_path / "test_users_code.py"
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
    assert "2 passed" in done.stdout
