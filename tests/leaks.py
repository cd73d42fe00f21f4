"""`python -m tests.leaks [--clients N] [--connections N]`: what ended clients and connections cost.

Starts, uses and closes N producers, then N consumers, then N consumers of a group in this process,
and says by how much its memory (RSS) grew after the first ones. Then opens N connections to the
broker, a process of its own; each says Hello, stays for a second and ends. Says by how much the
memory of both processes grew. Ends with 1 when a growth is over its bound.

The connections live for a second because objects that are that old are looked at by full
collections only, and a server with many objects has few of these.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from millrace import Admin, Consumer, Producer
from millrace._cluster.connection import Connection
from tests.hostile.target import broker_process

TOPIC = "leaks"
CLIENTS = 2_000
CONNECTIONS = 100_000
FIRST_CLIENTS = 200
"""After so many, caches and the allocator's arenas are as large as they get."""
FIRST_CONNECTIONS = 2_000
TOGETHER = 500
"""Connections that are open at the same time."""
LIFE_S = 1.0
CLIENT_GROWTH_BYTES_MAX = 5 << 20
CONNECTION_GROWTH_BYTES_MAX = 5 << 20
MIB = 1 << 20
NO_DELAY = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
"""Each consumer is the first of its group, and gets its partitions at once."""

Life = Callable[[str], Awaitable[None]]


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no VmRSS")


async def produce(servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send(TOPIC, b"x" * 100)


async def consume(servers: str) -> None:
    async with Consumer(servers, TOPIC) as consumer:
        await consumer.getone()


async def share(servers: str) -> None:
    async with Consumer(servers, TOPIC, group="leaks") as consumer:
        await consumer.getmany(1, timeout_ms=10_000)
        consumer.seek_to_beginning()


async def clients(servers: str, life: Life, count: int) -> bool:
    """Whether `count` clients of one kind leave as much memory as they found."""
    for _ in range(FIRST_CLIENTS):
        await life(servers)
    before = memory_bytes(os.getpid())
    for _ in range(count):
        await life(servers)
    growth = memory_bytes(os.getpid()) - before
    name = f"{count} x {life.__name__}"
    return told(name, "this process", before, growth, CLIENT_GROWTH_BYTES_MAX)


async def one_connection(port: int) -> None:
    connection = await Connection.open(
        ("127.0.0.1", port),
        client_id="leaks",
        connect_timeout_ms=60_000,
        receive_bytes_max=1 << 20,
    )
    await asyncio.sleep(LIFE_S)
    connection.close()


async def many_connections(port: int, count: int) -> None:
    left = iter(range(count))

    async def one_after_the_other() -> None:
        for _ in left:
            await one_connection(port)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(TOGETHER):
            tasks.create_task(one_after_the_other())


async def connections(port: int, broker_pid: int, count: int) -> bool:
    """Whether `count` connections leave as much memory as they found, at both ends."""
    await many_connections(port, FIRST_CONNECTIONS)
    pids = {"the broker": broker_pid, "this process": os.getpid()}
    before = {name: memory_bytes(pid) for name, pid in pids.items()}
    await many_connections(port, count)
    fine = True
    for name, pid in pids.items():
        growth = memory_bytes(pid) - before[name]
        fine &= told(
            f"{count} connections", name, before[name], growth, CONNECTION_GROWTH_BYTES_MAX
        )
    return fine


def told(what: str, where: str, before: int, growth: int, bound: int) -> bool:
    fine = growth < bound
    print(
        f"{what}: {where} had {before / MIB:.1f} MiB and grew by {growth / MIB:.1f} MiB; "
        f"the bound is {bound / MIB:.0f} MiB{'' if fine else ': TOO MUCH'}",
        flush=True,
    )
    return fine


async def run(port: int, broker_pid: int, client_count: int, connection_count: int) -> bool:
    servers = f"127.0.0.1:{port}"
    async with Admin(servers) as admin:
        await admin.create_topic(TOPIC, configs={"durability": "os"})
    fine = True
    if client_count:
        for life in (produce, consume, share):
            fine &= await clients(servers, life, client_count)
    if connection_count:
        fine &= await connections(port, broker_pid, connection_count)
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.leaks", description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="millrace-leaks-") as directory,
        broker_process(Path(directory), environment=NO_DELAY) as broker,
    ):
        work = run(broker.port, broker.process.pid, chosen.clients, chosen.connections)
        return 0 if asyncio.run(work) else 1


if __name__ == "__main__":
    sys.exit(main())
