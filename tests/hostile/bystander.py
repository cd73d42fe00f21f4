"""A well-behaved client beside the attackers: `python -m tests.hostile.bystander PORT`.

Appends one record and reads it back every 10 ms, in a process of its own, until its input ends;
then prints one line of JSON: how many rounds, and p50, p99 and the longest in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from tests.broker.wire import Wire, batch, connect
from tests.hostile.target import GOOD

PACE_S = 0.01


async def work_round(wire: Wire) -> None:
    """One record there and back."""
    value = b"%d" % time.monotonic_ns()
    produced = await wire.produce(GOOD, batch(value))
    assert produced.error_code == 0, produced
    fetched = await wire.fetch(GOOD, produced.base_offset)
    assert fetched.error_code == 0 and value in bytes(fetched.records)


async def work(port: int, until: asyncio.Event, rounds_ms: list[float]) -> None:
    """Rounds until told to stop; the time of each goes to `rounds_ms`."""
    async with connect(port, client_id=b"bystander") as wire:
        while True:
            started = time.perf_counter()
            await work_round(wire)
            rounds_ms.append((time.perf_counter() - started) * 1e3)
            if until.is_set():
                return
            await asyncio.sleep(max(0, PACE_S - (time.perf_counter() - started)))


async def main(port: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    rounds_ms: list[float] = []
    await work(port, stop, rounds_ms)
    rounds_ms.sort()
    count = len(rounds_ms)
    print(
        json.dumps(
            {
                "rounds": count,
                "p50_ms": rounds_ms[count // 2],
                "p99_ms": rounds_ms[min(count - 1, count * 99 // 100)],
                "max_ms": rounds_ms[-1],
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
