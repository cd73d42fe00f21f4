"""An application beside brokers that end: a producer and a consumer that both note what they see.

The producer sends a small record to each partition every few milliseconds, whether the ones before
it are acked or not. The consumer has to receive each of them once, in order. Run by the harness as
`python -m benchmarks.cluster_load WORK`. It prints a line when all partitions are acked, and then
one for each line that it reads:

    after PARTITION NS    the time of the first ack of a record that was sent after NS
    report                ends; what was seen, as JSON

Times are nanoseconds of `time.monotonic_ns`, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from dataclasses import asdict, dataclass, field

import uvloop

from millrace import Consumer, Delivery, Producer
from millrace.errors import MillraceError

READY = "ready"
NUMBER = struct.Struct(">Q")
RECEIVE_TIMEOUT_S = 60.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class SteadyWork:
    """What is sent: one record of each partition every `interval_ms`."""

    servers: str
    topic: str
    partitions: int
    interval_ms: int

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


@dataclass(slots=True)
class Seen:
    """What an application has seen; `acked_ns[partition]` are the times of its acks, ascending."""

    acked_ns: list[list[int]]
    errors: list[str] = field(default_factory=list)
    lost: int = 0
    """Acked records that were not received."""
    doubled: int = 0
    """Records that were received twice, or out of order."""


class SteadyLoad:
    """One producer and one consumer, from `run` to the line `report`."""

    def __init__(self, work: SteadyWork) -> None:
        self._work = work
        self._seen = Seen([[] for _ in range(work.partitions)])
        self._sent = [0] * work.partitions
        self._acked = [0] * work.partitions
        """Records up to the last ack, by partition."""
        self._received = [0] * work.partitions
        self._waiting: dict[int, tuple[int, asyncio.Future[int]]] = {}
        self._deliveries: set[asyncio.Task[None]] = set()
        self._all_acked = asyncio.Event()

    async def run(self) -> None:
        """Serves the harness."""
        lines = await _input_lines()
        async with Producer(self._work.servers, linger_ms=0) as producer:
            sending = asyncio.create_task(self._send(producer))
            receiving = asyncio.create_task(self._receive())
            await self._all_acked.wait()
            _tell(READY)
            while (line := (await lines.readline()).decode().split())[0] == "after":
                _tell(str(await self._first_ack(int(line[1]), int(line[2]))))
            sending.cancel()
            await asyncio.wait([sending])
            await asyncio.gather(*self._deliveries)
        self._seen.lost += await self._missing()
        receiving.cancel()
        await asyncio.wait([receiving])
        _tell(json.dumps(asdict(self._seen)))

    async def _missing(self) -> int:
        """Records that were acked and do not arrive in time."""
        until_s = time.monotonic() + RECEIVE_TIMEOUT_S
        while True:
            pairs = zip(self._acked, self._received, strict=True)
            missing = sum(max(0, acked - received) for acked, received in pairs)
            if not missing or time.monotonic() >= until_s:
                return missing
            await asyncio.sleep(LOOK_S)

    async def _first_ack(self, partition: int, since_ns: int) -> int:
        acked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[partition] = since_ns, acked
        return await acked

    async def _send(self, producer: Producer) -> None:
        work = self._work
        due_s = time.monotonic()
        while True:
            for partition in range(work.partitions):
                number = self._sent[partition]
                self._sent[partition] += 1
                delivery = producer.send(work.topic, NUMBER.pack(number), partition=partition)
                noted = self._note(delivery, partition, number, time.monotonic_ns())
                task = asyncio.create_task(noted)
                self._deliveries.add(task)
                task.add_done_callback(self._deliveries.discard)
            due_s += work.interval_ms / 1000
            await asyncio.sleep(max(0, due_s - time.monotonic()))

    async def _note(self, delivery: Delivery, partition: int, number: int, sent_ns: int) -> None:
        try:
            await delivery
        except MillraceError as error:
            self._seen.errors.append(f"{type(error).__name__}: {error}")
            return
        now_ns = time.monotonic_ns()
        self._seen.acked_ns[partition].append(now_ns)
        self._acked[partition] = number + 1
        if all(self._acked):
            self._all_acked.set()
        since_ns, waiting = self._waiting.get(partition, (0, None))
        if waiting is not None and sent_ns > since_ns:
            waiting.set_result(now_ns)
            del self._waiting[partition]

    async def _receive(self) -> None:
        work = self._work
        try:
            async with Consumer(work.servers, work.topic, start="earliest") as consumer:
                async for record in consumer:
                    (number,) = NUMBER.unpack(record.value or b"")
                    due = self._received[record.partition]
                    if number < due:
                        self._seen.doubled += 1
                    else:
                        self._seen.lost += number - due
                        self._received[record.partition] = number + 1
        except MillraceError as error:
            self._seen.errors.append(f"{type(error).__name__}: {error}")


async def _input_lines() -> asyncio.StreamReader:
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return lines


def _tell(line: str) -> None:
    print(line, flush=True)


def main(arguments: list[str]) -> None:
    (text,) = arguments
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(SteadyLoad(SteadyWork(**json.loads(text))).run())


if __name__ == "__main__":
    main(sys.argv[1:])
