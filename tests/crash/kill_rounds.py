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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from millrace import Admin, Consumer, Producer
from millrace_server.disk.lock import LOCK_NAME
from tests.history.anomalies import Report
from tests.history.checker import check
from tests.history.operations import (
    Crashed,
    History,
)
from tests.history.recorded_clients import (
    CONSUMER,
    RecordedReads,
    RecordedSends,
    read_all,
)

TOPIC = "rounds"
PARTITIONS = 3


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
            reading = RecordedReads(consumer, history, CONSUMER)
            following = group.create_task(reading.follow())
            sends = RecordedSends(producer, history, TOPIC, PARTITIONS)
            sending = group.create_task(sends.send_until_told())
            for _ in range(rounds):
                await sends.acked_more(rng.randrange(1, 3_000))
                await broker.kill()
                history.add(Crashed("the broker"))
                await broker.start()
                await reading.note_watermarks()
            sends.stop()
            await sending
            following.cancel()
        polled = reading.count
        await read_all(broker.servers, TOPIC, history)
    finally:
        await broker.kill()
    return Outcome(rounds, check(history), sends.sent, polled)
