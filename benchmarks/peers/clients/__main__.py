"""Runs one client for one round: `python -m benchmarks.peers.clients CLIENT VERB TASK`.

It opens its client, prints `ready`, waits for a line, works, and prints a `Report` as JSON. So all
clients of a round begin at the same moment, and no import or connection is within the time.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict

import uvloop

from benchmarks.peers.clients.client import TIMEOUT_S, Client, Stalled
from benchmarks.peers.clients.schedule import flood, receive_paced, send_paced
from benchmarks.peers.task import Report, Task
from benchmarks.peers.values import checksum, pool

CLIENTS = {
    "native": "Native",
    "confluent": "Confluent",
    "aio": "Aio",
    "java": "PerformanceTools",
    "redis_streams": "Streams",
    "jetstream": "JetStream",
}
RETRY_S = 0.01


def new_client(name: str, task: Task) -> Client:
    """The client of a library. Raises `ImportError` where the library is missing."""
    module = importlib.import_module(f"benchmarks.peers.clients.{name}")
    made: Client = getattr(module, CLIENTS[name])(task)
    return made


async def ready() -> None:
    """Tells the harness, and waits for its line, while the client's own tasks go on."""
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    line = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), line.set)
    await line.wait()
    loop.remove_reader(sys.stdin.fileno())
    # The harness writes a whole line, so this does not block.
    sys.stdin.readline()


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def produce(client: Client, task: Task) -> Report:
    """Sends the values of the pool in their order, after a warm-up that is not timed."""
    await client.open_producer()
    values = pool(task.value_bytes)
    if task.warm_up:
        await client.produce(values, task.warm_up)
    await ready()
    cpu_s, began = _cpu_s(), time.monotonic()
    own_s = await client.produce(values, task.records)
    ended = began + own_s if own_s else time.monotonic()
    size = task.records * task.value_bytes
    return Report(task.records, size, began, ended, _cpu_s() - cpu_s)


async def fill(client: Client, task: Task) -> Report:
    """Sends the same number of records to each of the task's partitions."""
    await client.open_producer()
    await ready()
    began = time.monotonic()
    each = task.records // len(task.partitions)
    for partition in task.partitions:
        await client.produce(pool(task.value_bytes), each, partition)
    count = each * len(task.partitions)
    return Report(count, count * task.value_bytes, began, time.monotonic(), 0.0)


async def consume(client: Client, task: Task) -> Report:
    """Takes all records. The clock starts when the first ones have come, which are not counted.

    The consumer is opened when it is let go: it would read ahead meanwhile.
    """
    await ready()
    await client.open_consumer()
    cpu_s, began = _cpu_s(), time.monotonic()
    first = await client.consume(task.records if client.has_own_clock else 1)
    counted, size, left = first.records, first.value_bytes, task.records - first.records
    ended = began + first.own_s if client.has_own_clock else time.monotonic()
    if left > 0:
        cpu_s, began = _cpu_s(), time.monotonic()
        rest = await client.consume(left)
        ended = time.monotonic()
        counted, size, left = rest.records, size + rest.value_bytes, left - rest.records
    missing = 0 if client.has_own_clock else task.records * task.value_bytes - size
    if left > 0 or missing > 0:
        raise Stalled(f"{left} records and {missing} bytes of values did not arrive")
    return Report(counted, counted * task.value_bytes, began, ended, _cpu_s() - cpu_s)


async def verify(client: Client, task: Task) -> Report:
    """Reads the topic up to the task's number of records, with a checksum of their values."""
    await client.open_consumer()
    await ready()
    began = time.monotonic()
    count = size = total = 0
    try:
        async with asyncio.timeout(TIMEOUT_S * 4):
            async for values in client.receive():
                count += len(values)
                size += sum(map(len, values))
                total += checksum(values)
                if count >= task.records:
                    break
    except (TimeoutError, Stalled):
        pass  # The report has how many there are.
    return Report(count, size, began, time.monotonic(), 0.0, total)


async def first_ack(client: Client, task: Task) -> Report:
    """Sends one record until it is acked, while the server starts."""
    await ready()
    began = time.monotonic()
    deadline = began + 4 * TIMEOUT_S
    while True:
        attempt = new_client(sys.argv[1], task)
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + 4 * TIMEOUT_S):
                await attempt.open_producer()
                await attempt.produce(pool(task.value_bytes), 1)
            return Report(1, task.value_bytes, began, time.monotonic(), 0.0)
        except Exception:
            # Every library has errors of its own for a server that is not there yet.
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(RETRY_S)
        finally:
            await _close(attempt)


async def join(client: Client, task: Task) -> Report:
    """Joins a group; the time is to the first record. It stays until the harness ends it."""
    await ready()
    began = time.monotonic()
    await client.join()
    print(json.dumps(asdict(Report(1, 0, began, time.monotonic(), 0.0))), flush=True)
    await client.attend()
    raise AssertionError("a member attends until its process is ended")


async def send(client: Client, task: Task) -> Report:
    """Sends on a schedule; see `schedule`."""
    await client.open_producer()
    await ready()
    cpu_s, began = _cpu_s(), time.monotonic()
    late_ms: Sequence[float] = ()
    if task.rate:
        late_ms = await send_paced(client, task)
    else:
        await flood(client, task)
    size = task.records * task.value_bytes
    return Report(task.records, size, began, time.monotonic(), _cpu_s() - cpu_s, None, late_ms)


async def receive(client: Client, task: Task) -> Report:
    """Receives what `send` sends, and how long each record took."""
    await client.open_consumer()
    await ready()
    cpu_s, began = _cpu_s(), time.monotonic()
    found = await receive_paced(client, task)
    size = task.records * task.value_bytes
    return Report(
        task.records,
        size,
        found.began or began,
        found.ended,
        _cpu_s() - cpu_s,
        latencies_ms=found.latencies_ms,
    )


VERBS: dict[str, Callable[[Client, Task], Awaitable[Report]]] = {
    each.__name__: each for each in (produce, fill, consume, verify, first_ack, join, send, receive)
}


async def _close(client: Client) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await client.close()
    except Exception as error:
        # What was measured is whole; the harness ends the process.
        print(f"close: {error!r}", file=sys.stderr)


async def run(name: str, verb: str, text: str) -> Report:
    """Opens, works and closes."""
    task = Task.from_json(text)
    client = new_client(name, task)
    pool(task.value_bytes)
    try:
        return await VERBS[verb](client, task)
    finally:
        await _close(client)


def main(arguments: list[str]) -> None:
    name, verb, text = arguments
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report = runner.run(run(name, verb, text))
    # With PYTHONUNBUFFERED, stdout drops what one write does not take: all behind 64 KiB of a pipe.
    with open(sys.stdout.fileno(), "w", closefd=False) as stdout:
        print(json.dumps(asdict(report)), file=stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
