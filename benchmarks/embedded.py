"""Starts the embedded broker over and over: `python -m benchmarks.embedded COUNT`.

Prints as JSON how many milliseconds each took from nothing to listening.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from millrace_server.testing import Broker


async def _start_ms() -> float:
    started = time.perf_counter()
    async with Broker():
        return (time.perf_counter() - started) * 1000


async def _starts_ms(count: int) -> list[float]:
    return [await _start_ms() for _ in range(count)]


def main(arguments: list[str]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(_starts_ms(int(arguments[0])))))


if __name__ == "__main__":
    main(sys.argv[1:])
