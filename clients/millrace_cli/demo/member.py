"""A member of the demo's group, in a process of its own: `python -m millrace_cli.demo.member`.

Owns the loop of a member: fetch a few records, process them (report them on stdout), commit. Knows
no other member. Each report is a line of JSON and written at once, so that a kill loses no report:

    ["assigned",  nanoseconds, [partition, ...]]                 the whole assignment
    ["processed", nanoseconds, [[partition, first_offset, last_offset, [key, ...]], ...]]
    ["held",      nanoseconds, [[partition, first_offset, last_offset, [key, ...]], ...]]
    ["committed", nanoseconds, [[partition, offset], ...]]       offset: the next to process
    ["refused",   nanoseconds, [[partition, reason], ...]]       in place of committed

The nanoseconds are of the machine's monotonic clock, the same for all processes. The keys of a run
are those of its records, without duplicates. Commands are lines on stdin: `join` the group; `go`:
process records; `hold`: process records and never commit them (the report is "held"), and wait for
the kill. At the end of stdin the member leaves the group.
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
"""The group's wait for a killed member: short, but far longer than a heartbeat."""
HEARTBEAT_INTERVAL_MS = 100
Run = tuple[int, int, int, list[str]]
"""Records without a gap: partition, first and last offset, keys."""


class Commands:
    """The commands that the process has received."""

    def __init__(self) -> None:
        self.join = asyncio.Event()
        self.go = asyncio.Event()
        self.hold = asyncio.Event()

    async def listen(self) -> None:
        """Returns at the end of stdin. Raises `KeyError` for an unknown command."""
        words = {b"join\n": self.join, b"go\n": self.go, b"hold\n": self.hold}
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while word := await reader.readline():
            words[word].set()


class Assignment:
    """The partitions of the member; reports each change."""

    def __init__(self) -> None:
        self._partitions: set[int] = set()

    def add(self, partitions: list[TopicPartition]) -> None:
        self._partitions.update(where.partition for where in partitions)
        _report("assigned", sorted(self._partitions))

    def remove(self, partitions: list[TopicPartition]) -> None:
        self._partitions.difference_update(where.partition for where in partitions)
        _report("assigned", sorted(self._partitions))


def runs(records: Iterable[Record]) -> list[Run]:
    """The records as runs, in their order.

    A run ends where the partition changes or the next offset is missing, so that the runs show
    every gap and every step back.
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
    commands = Commands()
    listening = asyncio.create_task(commands.listen())
    work = asyncio.create_task(_work(servers, topic, group, records_max, commands))
    try:
        await asyncio.wait({listening, work}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (listening, work):
            task.cancel()
            # Both end by cancellation; other errors are raised.
            with suppress(asyncio.CancelledError):
                await task


async def _work(servers: str, topic: str, group: str, records_max: int, commands: Commands) -> None:
    from millrace.consumer import Consumer

    assignment = Assignment()
    await commands.join.wait()
    async with Consumer(
        servers,
        topic,
        group=group,
        auto_commit=False,
        on_assigned=assignment.add,
        on_revoked=assignment.remove,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        fetch_max_wait_ms=50,
    ) as consumer:
        await commands.go.wait()
        while True:
            records = await consumer.getmany(records_max)
            if commands.hold.is_set():
                _report("held", runs(records))
                await asyncio.get_running_loop().create_future()
            _report("processed", runs(records))
            outcomes = await consumer.commit()
            done = [(w.partition, o.offset) for w, o in outcomes.items() if o.error is None]
            _report("committed", done)
            refused = [(w.partition, str(o.error)) for w, o in outcomes.items() if o.error]
            if refused:
                _report("refused", refused)


def _report(kind: str, rows: Sequence[Any]) -> None:
    line = json.dumps([kind, time.monotonic_ns(), rows], separators=(",", ":")) + "\n"
    data = memoryview(line.encode())
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    """Runs a member: `SERVERS TOPIC GROUP RECORDS_MAX`, where the last bounds a commit."""
    servers, topic, group, records_max = sys.argv[1:]
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_take_part(servers, topic, group, int(records_max)))


if __name__ == "__main__":
    main()
