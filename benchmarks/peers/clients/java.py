"""The performance tools of Apache Kafka, in a JVM of their own.

They time themselves without the start of the JVM. The producer's picks its values from the pool at
random, so that their number can be checked and their checksum cannot.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from benchmarks.apache_kafka import classpath
from benchmarks.peers.clients.client import Client, Stalled, Taken
from benchmarks.peers.task import BATCH_BYTES

TOOLS = "org.apache.kafka.tools."
TOOL_TIMEOUT_S = 300
_SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


class PerformanceTools(Client):
    """kafka-producer-perf-test and kafka-consumer-perf-test."""

    has_own_clock = True

    async def open_producer(self) -> None:
        self._jars = f"{classpath()}:{classpath('kafka-tools')}"

    async def open_consumer(self) -> None:
        await self.open_producer()

    async def close(self) -> None:
        pass

    async def produce(
        self, values: Sequence[bytes], count: int, partition: int | None = None
    ) -> float:
        task = self.task
        with tempfile.TemporaryDirectory() as directory:
            payloads = Path(directory) / "payloads"
            payloads.write_bytes(b"\n".join(values))
            printed = await self._run(
                "ProducerPerformance",
                *("--bootstrap-server", task.servers, "--topic", task.topic),
                *("--num-records", str(count), "--throughput", "-1"),
                *("--payload-file", str(payloads)),
                *("--command-property", f"acks={task.acks}"),
                *("--command-property", f"linger.ms={task.linger_ms}"),
                *("--command-property", f"batch.size={BATCH_BYTES}"),
                *("--command-property", f"compression.type={task.compression}"),
            )
        # Progress has the same form; the last line has the whole.
        *_, (sent, rate) = _SENT.findall(printed)
        if int(sent) != count:
            raise Stalled(f"kafka-producer-perf-test sent {sent} records of {count}")
        return count / float(rate)

    async def consume(self, least: int) -> Taken:
        printed = await self._run(
            "ConsumerPerformance",
            *("--bootstrap-server", self.task.servers, "--topic", self.task.topic),
            *("--num-records", str(least), "--hide-header"),
        )
        return consumed(printed)

    async def _run(self, tool: str, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("java", "-Xmx512m", "-cp", self._jars, TOOLS + tool, *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(TOOL_TIMEOUT_S):
            printed, _ = await process.communicate()
        if process.returncode:
            raise Stalled(f"{tool} ended with {process.returncode}")
        return printed.decode()

    async def send(self, values: Sequence[bytes]) -> None:
        raise NotImplementedError("the performance tools send on no schedule of others")

    async def flush(self) -> None:
        pass

    def receive(self) -> AsyncIterator[Sequence[bytes]]:
        raise NotImplementedError("the performance tools hand out no values")


def consumed(printed: str) -> Taken:
    """What kafka-consumer-perf-test reports: its last line, as of 4.x.

    start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, MB/s and records/s of fetching
    """
    cells = [cell.strip() for cell in printed.strip().splitlines()[-1].split(",")]
    records, fetch_ms = int(cells[4]), float(cells[7])
    return Taken(records, round(float(cells[2]) * (1 << 20)), fetch_ms / 1000)
