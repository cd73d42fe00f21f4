"""Records to a topic, as fast as the producer takes them or at a limited rate.

Owns one run: what is sent when, and the latency of each record until its ack. After the first
signal nothing more is sent, and the run waits for acks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from millrace._producer.receipts import Deliveries
from millrace.errors import MillraceError, again
from millrace.producer import Producer
from millrace_cli.bench.measurement import Measurement
from millrace_cli.bench.random_values import RandomValues
from millrace_cli.bench.schedule import Schedule
from millrace_cli.interruption import until_interrupted
from millrace_cli.progress_display import displayed
from millrace_cli.visible_text import counted
from millrace_cli.watched_producer import ACKS_S, watched_producer

CHUNK_BYTES = 64 * 1024
"""Values of one call of `send_many`; they share the moments of sending and of the ack."""


class ProduceLoad:
    """One run: `records` values of `record_size` bytes, at most `throughput` per second."""

    def __init__(
        self,
        topic: str,
        *,
        records: int,
        record_size: int,
        throughput: int | None = None,
        is_acked: bool = True,
    ) -> None:
        """Without `is_acked` no broker answers, and there are no latencies."""
        self.measurement = Measurement(records)
        self._topic = topic
        self._records = records
        self._values = RandomValues(record_size)
        self._throughput = throughput
        self._is_acked = is_acked
        self._chunk = max(1, CHUNK_BYTES // record_size)
        self._sent = 0
        self._is_stopped = False
        self._error: MillraceError | None = None
        self._settling: set[asyncio.Task[None]] = set()
        self._settled = asyncio.Event()
        """Set when no records wait for acks, and at the first failure."""

    @property
    def unacked(self) -> int:
        """Records that were given to the producer and are not acked."""
        return self._sent - self.measurement.records

    async def run(self, servers: str, settings: Mapping[str, Any], *, action: str) -> None:
        """Sends all records and waits for their acks. Raises the first failure, and then stops."""
        producing = watched_producer(servers, settings, unacked=lambda: self.unacked)
        try:
            async with producing as producer:
                await producer.partition_count(self._topic)
                with displayed(action, self.measurement.shown, total=self._records):
                    await until_interrupted(
                        self._send(producer),
                        stop=self._stop,
                        within_s=ACKS_S,
                        waits_for=lambda: (
                            f"the broker to acknowledge {counted(self.unacked, 'record')}"
                        ),
                    )
        finally:
            self.measurement.missing = self.unacked if self._is_acked else None

    def _stop(self) -> None:
        self._is_stopped = True

    async def _send(self, producer: Producer) -> None:
        self.measurement.start()
        schedule = None
        if self._throughput is not None:
            schedule = Schedule(time.monotonic_ns(), self._throughput)
        try:
            while self._sent < self._records and not self._is_stopped:
                count = min(self._chunk, self._records - self._sent)
                if schedule is not None:
                    count = min(count, await schedule.wait(self._sent) - self._sent)
                await producer.room()
                sent_ns = time.monotonic_ns()
                deliveries = producer.send_many(self._topic, self._values.take(count))
                settling = asyncio.create_task(
                    self._settle(deliveries, self._sent, sent_ns, schedule)
                )
                self._settling.add(settling)
                settling.add_done_callback(self._on_settled)
                self._sent += count
            while self._settling and self._error is None:
                self._settled.clear()
                await self._settled.wait()
        finally:
            for settling in self._settling:
                settling.cancel()
        if self._error is not None:
            raise again(self._error)

    def _on_settled(self, settling: asyncio.Task[None]) -> None:
        self._settling.discard(settling)
        if not self._settling:
            self._settled.set()

    async def _settle(
        self, deliveries: Deliveries, first: int, sent_ns: int, schedule: Schedule | None
    ) -> None:
        """Counts records when they are acked. A failure stops the run."""
        try:
            await deliveries.settled()
        except MillraceError as error:
            self._error = self._error or error
            self._is_stopped = True
            self._settled.set()
            return
        acked_ns = time.monotonic_ns()
        count = len(deliveries)
        measurement = self.measurement
        if self._is_acked:
            if schedule is None:
                measurement.latency.add(acked_ns - sent_ns, count)
            else:
                for number in range(first, first + count):
                    measurement.latency.add(schedule.latency_ns(number, sent_ns, acked_ns))
        measurement.count(count, count * self._values.size)
