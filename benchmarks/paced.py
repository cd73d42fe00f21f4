"""The two clients of the latency benchmark: a producer on a schedule, and a consumer.

Owns the open loop. Record `i` is due at `start + i / rate`, and its stamp is that moment: a record
that the producer sends late has waited since it was due, and its latency says so. Run by the
harness as `python -m benchmarks.paced send|receive WORK`; only the public clients are used, so the
sources of another checkout can be measured with the same program.

Each prints a line at the events that the harness waits for. What it measured it prints when it is
asked by a line, so that the report is outside of the measured time.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass

import uvloop

from benchmarks.ticks import Ticks
from millrace import Consumer, Producer

READY = "ready"
MEASURING = "measuring"
SENT = "sent"
RECEIVED = "received"
STAMP = struct.Struct(">QQ")
"""The number of the record and the moment it was due, in nanoseconds of `time.monotonic_ns`."""
START_DELAY_NS = 100_000_000
RECEIVE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class PacedWork:
    """One round: `warm_up` records that do not count, then `records` that do."""

    servers: str
    topic: str
    records: int
    warm_up: int
    rate: int
    value_bytes: int

    @property
    def total(self) -> int:
        """Records that are sent and received."""
        return self.warm_up + self.records

    @property
    def padding(self) -> bytes:
        """The end of every value, behind the stamp."""
        return b"v" * (self.value_bytes - STAMP.size)

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


def _tell(line: str) -> None:
    print(line, flush=True)


async def send(work: PacedWork) -> list[int]:
    """Sends on schedule; returns how late each measured record was handed over, in ns."""
    late_ns: list[int] = []
    interval_ns = 10**9 // work.rate
    async with Producer(work.servers, linger_ms=0) as producer:
        start_ns = time.monotonic_ns() + START_DELAY_NS
        loop = asyncio.get_running_loop()
        finished = loop.create_future()
        schedule = _schedule(work, start_ns, interval_ns)
        number, due_ns = next(schedule)

        def send_due() -> None:
            nonlocal number, due_ns
            ticks.clear()
            while (now_ns := time.monotonic_ns()) >= due_ns:
                if number == work.total:
                    loop.remove_reader(ticks.fileno())
                    finished.set_result(None)
                    return
                if number == work.warm_up:
                    _tell(MEASURING)
                producer.send(work.topic, STAMP.pack(number, due_ns) + work.padding)
                late_ns.append(now_ns - due_ns)
                number, due_ns = next(schedule)

        with closing(Ticks(start_ns, interval_ns)) as ticks:
            loop.add_reader(ticks.fileno(), send_due)
            await finished
        await producer.flush()
        _tell(SENT)
        sys.stdin.readline()
    return late_ns[work.warm_up :]


def _schedule(work: PacedWork, start_ns: int, interval_ns: int) -> Iterator[tuple[int, int]]:
    """The number of each record and when it is due; one more marks the end."""
    for number in range(work.total + 1):
        yield number, start_ns + number * interval_ns


async def receive(work: PacedWork) -> list[int]:
    """Receives and checks all records; returns the latency of each measured one, in ns."""
    latency_ns: list[int] = []
    padding = work.padding
    number = 0
    async with (
        asyncio.timeout(work.total / work.rate + RECEIVE_TIMEOUT_S),
        Consumer(work.servers, work.topic) as consumer,
    ):
        _tell(READY)
        async for record in consumer:
            now_ns = time.monotonic_ns()
            value = record.value or b""
            found, due_ns = STAMP.unpack_from(value)
            if found != number or value[STAMP.size :] != padding:
                raise ValueError(f"record {found} arrived where {number} was due, or is damaged")
            latency_ns.append(now_ns - due_ns)
            number += 1
            if number == work.total:
                break
        _tell(RECEIVED)
        sys.stdin.readline()
    return latency_ns[work.warm_up :]


def main(arguments: list[str]) -> None:
    name, text = arguments
    program = {"send": send, "receive": receive}[name]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        _tell(json.dumps(runner.run(program(PacedWork(**json.loads(text))))))


if __name__ == "__main__":
    main(sys.argv[1:])
