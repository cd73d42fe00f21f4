"""Kill a broker without warning, again and again, under the load of one idempotent producer.

The broker is a process of its own and dies by SIGKILL; the producer lives through all rounds and
retries. At the end every partition must hold exactly what was sent to it: everything that was
acked, in the order of sending, nothing twice.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from millrace import Admin, Consumer, Delivery, Producer

TOPIC = "rounds"
PARTITIONS = 3
LAG_RECORDS = 2_000
"""Records sent and not acked at a time: enough that every kill hits batches in flight."""


class BrokerProcess:
    """`millrace serve` as a child process, on the same data and port every time."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Returns when the broker says that it listens."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "millrace",
            "serve",
            "--data",
            str(self._data),
            "--listen",
            f"127.0.0.1:{self._port}",
            "--log-level",
            "error",
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the broker did not start: {line!r}")
        self._port = int(line.rpartition(":")[2])

    async def kill(self) -> None:
        """SIGKILL, and no process left."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


@dataclass
class Outcome:
    """What a run showed. `violations` is empty when nothing was lost, doubled or reordered."""

    rounds: int
    sent: int = 0
    violations: list[str] = field(default_factory=list)


async def run_rounds(data: Path, *, rounds: int, seed: int, durability: str = "fsync") -> Outcome:
    """Kills the broker `rounds` times, each time after a random number of acks."""
    rng = random.Random(seed)
    broker = BrokerProcess(data)
    await broker.start()
    outcome = Outcome(rounds)
    try:
        async with Admin(broker.servers) as admin:
            await admin.create_topic(
                TOPIC, partitions=PARTITIONS, configs={"durability": durability}
            )
        async with Producer(broker.servers, linger_ms=1, delivery_timeout_ms=120_000) as producer:
            load = _Load(producer)
            sending = asyncio.create_task(load.send_until_told())
            for _ in range(rounds):
                await load.acked_more(rng.randrange(1, 3_000))
                await broker.kill()
                await broker.start()
            load.stop()
            await sending
            await producer.flush()
        outcome.sent = load.sent
        await _compare(broker.servers, load, outcome)
    finally:
        await broker.kill()
    return outcome


class _Load:
    """Numbers sent as fast as acks come back, never more than `LAG_RECORDS` ahead of them."""

    def __init__(self, producer: Producer[bytes, bytes]) -> None:
        self._producer = producer
        self._stopped = False
        self._acks = 0
        self._progress = asyncio.Condition()
        self.sent = 0

    def stop(self) -> None:
        self._stopped = True

    async def send_until_told(self) -> None:
        unacked: list[Delivery] = []
        while not self._stopped:
            for _ in range(LAG_RECORDS // 20):
                number = self.sent
                unacked.append(
                    self._producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                )
                self.sent += 1
            if len(unacked) >= LAG_RECORDS:
                await asyncio.gather(*unacked)
                async with self._progress:
                    self._acks += len(unacked)
                    self._progress.notify_all()
                unacked.clear()
            await self._producer.room()

    async def acked_more(self, count: int) -> None:
        """Returns when `count` more records are acked."""
        wanted = self._acks + count
        async with self._progress:
            await self._progress.wait_for(lambda: self._acks >= wanted)


async def _compare(servers: str, load: _Load, outcome: Outcome) -> None:
    read: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    async with Consumer(servers, TOPIC, start="earliest") as consumer:
        ends = await consumer.end_offsets(*consumer.assignment())
        left = sum(ends.values())
        while left > 0:
            for record in await consumer.getmany(timeout_ms=10_000):
                read[record.partition].append(int(record.value or b""))
                left -= 1
    for number, values in read.items():
        expected = list(range(number, load.sent, PARTITIONS))
        if values != expected:
            lost = len(set(expected) - set(values))
            doubled = len(values) - len(set(values))
            outcome.violations.append(
                f"partition {number}: {len(values)} records instead of {len(expected)}, "
                f"{lost} lost, {doubled} twice, {'in' if sorted(values) == values else 'out of'} "
                "order"
            )
