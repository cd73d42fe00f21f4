"""Kill a broker without warning, again and again, under producers and a consumer.

The broker is a process of its own and dies by SIGKILL; an idempotent producer and a consumer live
through all rounds and retry. What each of them saw is a history, and `tests.history` says whether
a correct log can have shown it: nothing acked is lost, nothing is there twice, no order changes,
and what was read once stays.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace import Admin, Consumer, Delivery, MillraceError, Producer, Record
from millrace_server.disk.lock import LOCK_NAME
from tests.history.anomalies import Report
from tests.history.checker import check
from tests.history.operations import (
    Acked,
    Crashed,
    History,
    Polled,
    ReadToEnd,
    Sent,
    Sought,
    Unknown,
    Watermark,
)

TOPIC = "rounds"
PARTITIONS = 3
LAG_RECORDS = 2_000
"""Records sent and not acked at a time: enough that every kill hits batches in flight."""
PRODUCER, CONSUMER, FINAL_READER = 1, 2, 3


class BrokerProcess:
    """`millrace serve` as a child process, on the same data and port every time."""

    def __init__(
        self,
        data: Path,
        *,
        under: tuple[str, ...] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`under` is a command to run the broker with, such as strace; `settings` are MILLRACE_*
        variables."""
        self._data = data
        self._under = under
        self._environment = {**os.environ, **(settings or {})}
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Returns when the broker says that it listens."""
        self._process = await asyncio.create_subprocess_exec(
            *self._under,
            sys.executable,
            "-m",
            "millrace_cli",
            "serve",
            "--data",
            str(self._data),
            "--listen",
            f"127.0.0.1:{self._port}",
            "--log-level",
            "error",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE if self._under else None,
            env=self._environment,
        )
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the broker did not start: {line!r}")
        self._port = int(line.rpartition(":")[2])

    async def kill(self) -> None:
        """SIGKILL, and no process left."""
        assert self._process is not None
        if self._process.returncode is None and self._under:
            # What the broker runs under ends with it, and would leave it running if it were killed.
            with suppress(ProcessLookupError):
                os.kill(int((self._data / LOCK_NAME).read_text()), signal.SIGKILL)
        elif self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.communicate()

    async def ended(self) -> tuple[int, str]:
        """Waits until the process ends by itself: its exit code and its stderr."""
        assert self._process is not None
        _, stderr = await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode, (stderr or b"").decode()


@dataclass
class Outcome:
    """What a run showed."""

    rounds: int
    report: Report
    sent: int
    polled: int
    """Records that the consumer read while brokers were killed."""


async def run_rounds(data: Path, *, rounds: int, seed: int, durability: str = "fsync") -> Outcome:
    """Kills the broker `rounds` times, each time after a random number of acks."""
    rng = random.Random(seed)
    history = History()
    broker = BrokerProcess(data)
    await broker.start()
    try:
        async with Admin(broker.servers) as admin:
            await admin.create_topic(
                TOPIC, partitions=PARTITIONS, configs={"durability": durability}
            )
        async with (
            Consumer(broker.servers, TOPIC, start="earliest") as consumer,
            Producer(broker.servers, linger_ms=1, delivery_timeout_ms=120_000) as producer,
            asyncio.TaskGroup() as group,
        ):
            reading = _Reading(consumer, history, CONSUMER)
            following = group.create_task(reading.follow())
            load = _Load(producer, history)
            sending = group.create_task(load.send_until_told())
            for _ in range(rounds):
                await load.acked_more(rng.randrange(1, 3_000))
                await broker.kill()
                history.add(Crashed("the broker"))
                await broker.start()
                await reading.note_watermarks()
            load.stop()
            await sending
            following.cancel()
        polled = reading.count
        await _read_all(broker.servers, history)
    finally:
        await broker.kill()
    return Outcome(rounds, check(history), load.sent, polled)


class _Load:
    """Numbers sent as fast as acks come back, never more than `LAG_RECORDS` ahead of them."""

    def __init__(self, producer: Producer[bytes, bytes], history: History) -> None:
        self._producer = producer
        self._history = history
        self._stopped = False
        self._acks = 0
        self._progress = asyncio.Condition()
        self._unacked: deque[tuple[int, Delivery]] = deque()
        self.sent = 0

    def stop(self) -> None:
        self._stopped = True

    async def send_until_told(self) -> None:
        """Ends when told to and everything sent is acked, or given up."""
        while not self._stopped:
            await self._producer.room()
            for _ in range(LAG_RECORDS // 20):
                number = self.sent
                partition = number % PARTITIONS
                # Noted before the send: it may be appended from this moment on.
                self._history.add(Sent(PRODUCER, f"{TOPIC}-{partition}", number))
                delivery = self._producer.send(TOPIC, b"%d" % number, partition=partition)
                self._unacked.append((number, delivery))
                self.sent += 1
            await self._settle(LAG_RECORDS)
        await self._settle(0)

    async def _settle(self, left: int) -> None:
        """Notes what became of the oldest sends until no more than `left` are open."""
        unacked, settled = self._unacked, 0
        while len(unacked) > left or (unacked and unacked[0][1].done()):
            number, delivery = unacked.popleft()
            try:
                receipt = await delivery
            except MillraceError:
                self._history.add(Unknown(number))
            else:
                self._history.add(Acked(number, receipt.offset))
            settled += 1
        async with self._progress:
            self._acks += settled
            self._progress.notify_all()

    async def acked_more(self, count: int) -> None:
        """Returns when `count` more records are acked."""
        wanted = self._acks + count
        async with self._progress:
            await self._progress.wait_for(lambda: self._acks >= wanted)


class _Reading:
    """One consumer and what it is given."""

    def __init__(self, consumer: Consumer[bytes, bytes], history: History, process: int) -> None:
        self._consumer = consumer
        self._history = history
        self._process = process
        self.count = 0

    async def follow(self) -> None:
        """Reads until cancelled."""
        while True:
            self.note(await self._consumer.getmany())

    async def note_watermarks(self) -> None:
        """Asks how far each partition can be read."""
        ends = await self._consumer.end_offsets()
        for where, offset in ends.items():
            self._history.add(Watermark(self._process, str(where), offset))

    async def read_to(self, ends: dict[str, int]) -> None:
        """Reads until every partition was read to its end."""
        left = {partition for partition, end in ends.items() if end > 0}
        while left:
            records = await self._consumer.getmany(timeout_ms=10_000)
            if not records:
                raise TimeoutError(f"nothing to read, and the ends are {ends}")
            self.note(records)
            for record in records:
                if record.offset + 1 >= ends[str(record.topic_partition)]:
                    left.discard(str(record.topic_partition))

    def note(self, records: list[Record[bytes, bytes]]) -> None:
        """Adds the records to the history, a poll for each partition."""
        polls: dict[str, list[tuple[int, int]]] = {}
        for record in records:
            pair = (record.offset, int(record.value or b""))
            polls.setdefault(str(record.topic_partition), []).append(pair)
        for partition, pairs in polls.items():
            self._history.add(Polled(self._process, partition, pairs))
        self.count += len(records)


async def _read_all(servers: str, history: History) -> None:
    async with Consumer(servers, TOPIC, start="earliest") as consumer:
        reading = _Reading(consumer, history, FINAL_READER)
        ends = {str(where): end for where, end in (await consumer.end_offsets()).items()}
        for partition in ends:
            history.add(Sought(FINAL_READER, partition, 0))
        await reading.read_to(ends)
        for partition, end in ends.items():
            history.add(ReadToEnd(partition, 0, end))
