"""A group's member in a process of its own, to be killed: `python -m tests.crash.group_member`.

Takes records, processes them (which is: says so on its stdout), then commits, in this order. Says a
line of JSON for everything, each at once, so that a kill leaves what was done until then:

    ["processed", nanoseconds, [[partition, offset, key, value], ...]]
    ["committed", nanoseconds, [[partition, offset], ...]]

The nanoseconds are of the machine's monotonic clock, the same for all processes. Told "hold" on its
stdin it processes once more what it is given, says "held" of it, and never commits that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from typing import Any

from millrace import Consumer

RECORDS_MAX = 40
"""Of one commit: a member that is killed repeats no more than it takes at a time."""


async def _take_part(servers: str, group: str, topic: str) -> None:
    hold = threading.Event()
    threading.Thread(target=_obey, args=(hold,), daemon=True).start()
    async with Consumer(
        servers,
        topic,
        group=group,
        auto_commit=False,
        session_timeout_ms=1_000,
        heartbeat_interval_ms=100,
        fetch_max_wait_ms=50,
        retry_backoff_ms=10,
    ) as consumer:
        while True:
            records = await consumer.getmany(RECORDS_MAX)
            holds = hold.is_set()
            _say(
                "held" if holds else "processed",
                [
                    (r.partition, r.offset, (r.key or b"").decode(), int(r.value or b""))
                    for r in records
                ],
            )
            if holds:
                await asyncio.get_running_loop().create_future()
            outcomes = await consumer.commit()
            _say(
                "committed",
                [
                    (where.partition, outcome.offset)
                    for where, outcome in outcomes.items()
                    if outcome.is_committed
                ],
            )


def _obey(hold: threading.Event) -> None:
    if sys.stdin.readline():
        hold.set()


def _say(what: str, rows: list[Any]) -> None:
    line = json.dumps([what, time.monotonic_ns(), rows]) + "\n"
    data = memoryview(line.encode())
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    asyncio.run(_take_part(*sys.argv[1:]))
