"""The open loop: record `i` is due at `start + i / rate`, and its stamp is that moment.

A record that is sent late has waited since it was due, and its latency says so. The number and the
bytes of every record are checked by the receiver; contestants with several connections may change
their order, so each number has to come once.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from benchmarks.peers.clients.client import TIMEOUT_S, Client, Stalled
from benchmarks.peers.task import Task
from benchmarks.ticks import Ticks

STAMP = struct.Struct(">QQ")
"""The number of the record, and when it was due in ns of `time.monotonic_ns`."""
START_DELAY_NS = 100_000_000
TICK_NS = 500_000
"""At high rates, the records that became due within this time are sent one after the other."""
RECORDS_PER_FLOOD = 100


class Corrupt(Exception):
    """A record came twice, or its bytes are not those that were sent."""


def _stamped(task: Task, number: int, due_ns: int) -> bytes:
    return STAMP.pack(number, due_ns) + b"v" * (task.value_bytes - STAMP.size)


async def send_paced(client: Client, task: Task) -> Sequence[float]:
    """Sends `warm_up + records`; returns how late each measured record was sent, in ms."""
    total = task.warm_up + task.records
    interval_ns = 1e9 / task.rate
    start_ns = time.monotonic_ns() + START_DELAY_NS
    late_ms: list[float] = []
    loop, due = asyncio.get_running_loop(), asyncio.Event()
    number = 0
    with closing(Ticks(start_ns, max(int(interval_ns), TICK_NS))) as ticks:

        def tick() -> None:
            ticks.clear()
            due.set()

        loop.add_reader(ticks.fileno(), tick)
        try:
            while number < total:
                now_ns = time.monotonic_ns()
                ready = min(int((now_ns - start_ns) / interval_ns) + 1, total)
                if now_ns < start_ns or ready <= number:
                    await due.wait()
                    due.clear()
                    continue
                dues = [start_ns + int(each * interval_ns) for each in range(number, ready)]
                await client.send(
                    [_stamped(task, number + index, at) for index, at in enumerate(dues)]
                )
                late_ms += [(now_ns - at) / 1e6 for at in dues]
                number = ready
        finally:
            loop.remove_reader(ticks.fileno())
        await client.flush()
    return late_ms[task.warm_up :]


async def flood(client: Client, task: Task) -> None:
    """Sends all records as fast as the client takes them, each stamped when it is sent."""
    total = task.warm_up + task.records
    for first in range(0, total, RECORDS_PER_FLOOD):
        numbers = range(first, min(first + RECORDS_PER_FLOOD, total))
        now_ns = time.monotonic_ns()
        await client.send([_stamped(task, number, now_ns) for number in numbers])
    await client.flush()


@dataclass(slots=True)
class Received:
    """Latencies of the measured records; `began` and `ended` are the first and the last one's."""

    latencies_ms: list[float]
    began: float
    ended: float


async def receive_paced(client: Client, task: Task) -> Received:
    """Receives all records once. Raises `Corrupt`, and `Stalled` for records that do not come."""
    total = task.warm_up + task.records
    is_due = bytearray(b"\1") * total
    padding = _stamped(task, 0, 0)[STAMP.size :]
    latencies_ms: list[float] = []
    began, left = 0.0, total
    limit_s = TIMEOUT_S * 2 + (total / task.rate if task.rate else 0)
    try:
        async with asyncio.timeout(limit_s):
            async for values in client.receive():
                now_ns = time.monotonic_ns()
                for value in values:
                    number, due_ns = STAMP.unpack_from(value)
                    if number >= total or not is_due[number] or value[STAMP.size :] != padding:
                        raise Corrupt(f"record {number} came twice, or is damaged")
                    is_due[number] = 0
                    if number >= task.warm_up:
                        latencies_ms.append((now_ns - due_ns) / 1e6)
                    elif number == task.warm_up - 1:
                        began = now_ns / 1e9
                left -= len(values)
                if not left:
                    break
    except TimeoutError:
        raise Stalled(f"{left} records of {total} did not arrive") from None
    return Received(latencies_ms, began, time.monotonic())
