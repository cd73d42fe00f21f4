"""A member of the demo's group, in a process of its own: `python -m millrace_cli.demo.member`.

Owns what a process does that shares a topic: takes a few records, processes them (which is: says
so on its stdout), commits, in this order. Knows nothing of the other members and judges nothing.
Each line that it says is JSON and written at once, so that a kill leaves what was done until then:

    ["assigned",  nanoseconds, [partition, ...]]                 all that it has from now on
    ["processed", nanoseconds, [[partition, first_offset, last_offset, [key, ...]], ...]]
    ["held",      nanoseconds, [[partition, first_offset, last_offset, [key, ...]], ...]]
    ["committed", nanoseconds, [[partition, offset], ...]]       offset: the next to process
    ["refused",   nanoseconds, [[partition, why], ...]]          instead of committed

The nanoseconds are of the machine's monotonic clock, the same for all processes; the keys of a run
are those of its records, each once. What it is told on its stdin is one word in a line: `join` the
group, `go` and process, `hold` what is processed next and never commit that (it says "held" of it,
and waits to be killed). The end of its stdin is its own: it leaves the group.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from millrace._sync.loops import loop_factory

if TYPE_CHECKING:
    from millrace.records import Record, TopicPartition

SESSION_TIMEOUT_MS = 2_000
"""How long the group waits for a member that was killed: short, and far above a heartbeat."""
HEARTBEAT_INTERVAL_MS = 100
Run = tuple[int, int, int, list[str]]
"""Records without a gap: partition, first and last offset, keys."""


class Orders:
    """What the process was told."""

    def __init__(self) -> None:
        self.join = asyncio.Event()
        self.go = asyncio.Event()
        self.hold = asyncio.Event()

    async def listen(self) -> None:
        """Returns at the end of stdin. Raises `KeyError` for a word that is no order."""
        words = {b"join\n": self.join, b"go\n": self.go, b"hold\n": self.hold}
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while word := await reader.readline():
            words[word].set()


class Holding:
    """The partitions that the member has; says so whenever that changes."""

    def __init__(self) -> None:
        self._partitions: set[int] = set()

    def add(self, partitions: list[TopicPartition]) -> None:
        self._partitions.update(where.partition for where in partitions)
        _say("assigned", sorted(self._partitions))

    def remove(self, partitions: list[TopicPartition]) -> None:
        self._partitions.difference_update(where.partition for where in partitions)
        _say("assigned", sorted(self._partitions))


def runs(records: Iterable[Record]) -> list[Run]:
    """The records as runs, in their order.

    A run ends where the partition changes and where the next record is not the next offset, so
    that whoever reads the runs sees every gap and every step back.
    """
    found: list[tuple[int, int, int, dict[str, None]]] = []
    for record in records:
        partition, offset, key = record.partition, record.offset, (record.key or b"").decode()
        if found and found[-1][0] == partition and found[-1][2] + 1 == offset:
            _, first_offset, _, keys = found.pop()
        else:
            first_offset, keys = offset, {}
        keys[key] = None
        found.append((partition, first_offset, offset, keys))
    return [(partition, first, last, list(keys)) for partition, first, last, keys in found]


async def _take_part(servers: str, topic: str, group: str, records_max: int) -> None:
    orders = Orders()
    told = asyncio.create_task(orders.listen())
    work = asyncio.create_task(_work(servers, topic, group, records_max, orders))
    try:
        await asyncio.wait({told, work}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (told, work):
            task.cancel()
            # Cancelled is how both are meant to end; what else one of them died of is raised.
            with suppress(asyncio.CancelledError):
                await task


async def _work(servers: str, topic: str, group: str, records_max: int, orders: Orders) -> None:
    from millrace.consumer import Consumer

    holding = Holding()
    await orders.join.wait()
    async with Consumer(
        servers,
        topic,
        group=group,
        auto_commit=False,
        on_assigned=holding.add,
        on_revoked=holding.remove,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        fetch_max_wait_ms=50,
    ) as consumer:
        await orders.go.wait()
        while True:
            records = await consumer.getmany(records_max)
            if orders.hold.is_set():
                _say("held", runs(records))
                await asyncio.get_running_loop().create_future()
            _say("processed", runs(records))
            outcomes = await consumer.commit()
            done = [(w.partition, o.offset) for w, o in outcomes.items() if o.error is None]
            _say("committed", done)
            refused = [(w.partition, str(o.error)) for w, o in outcomes.items() if o.error]
            if refused:
                _say("refused", refused)


def _say(what: str, rows: Sequence[Any]) -> None:
    line = json.dumps([what, time.monotonic_ns(), rows], separators=(",", ":")) + "\n"
    data = memoryview(line.encode())
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    """Takes part: `SERVERS TOPIC GROUP RECORDS_MAX`, the last of them those of one commit."""
    servers, topic, group, records_max = sys.argv[1:]
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_take_part(servers, topic, group, int(records_max)))


if __name__ == "__main__":
    main()
