"""The well-behaved client: `python -m tests.hostile.bystander PORT` appends and reads back.

A well-behaved client: every 10 ms a produce that is acked when it is
on the disk (the default), and a fetch of what was produced. It runs in a process of its own, or
beside an attack, and never gives up: a round that is not served is a failure. At each line on its
input it prints, as JSON, its rounds since the one before.
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
    rounds_ms: list[float] = []

    def on_input() -> None:
        if not sys.stdin.buffer.readline():
            stop.set()
            return
        print(json.dumps(rounds_ms), flush=True)
        rounds_ms.clear()

    asyncio.get_running_loop().add_reader(sys.stdin, on_input)
    await work(port, stop, rounds_ms)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
