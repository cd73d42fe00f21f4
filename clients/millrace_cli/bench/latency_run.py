"""One record after the other through a topic: from sending it to having it from a consumer."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

from millrace.consumer import Consumer
from millrace.producer import Producer
from millrace.records import RecordBatch
from millrace_cli.bench import STAMP_BYTES
from millrace_cli.bench.measurement import Measurement
from millrace_cli.bench.random_values import RandomValues
from millrace_cli.bench.schedule import Schedule
from millrace_cli.broker_watch import ConsumerSilence, watching
from millrace_cli.client_identity import identity
from millrace_cli.exits import BrokerUnavailable
from millrace_cli.progress_display import displayed
from millrace_cli.read_range import ReadStart, seek_to_start
from millrace_cli.watched_producer import watched_producer


class LatencyRun:
    """One run. A record is sent when the one before it has arrived, and not before it is due."""

    def __init__(
        self, topic: str, *, records: int, record_size: int, throughput: int | None = None
    ) -> None:
        self.measurement = Measurement(records, missing=0)
        self._topic = topic
        self._records = records
        self._throughput = throughput
        self._record_size = record_size
        self._id = uuid.uuid4().bytes
        self._sent = 0

    @property
    def _pending(self) -> int:
        return self._sent - self.measurement.records

    async def run(
        self, servers: str, settings: Mapping[str, Any], *, broker_timeout_s: float
    ) -> None:
        """Sends and receives all records; `settings` are those of the producer."""
        consumer = Consumer(servers, self._topic, **identity())
        silence = ConsumerSilence(consumer, servers=servers)
        producing = watched_producer(servers, settings, unacked=lambda: self._pending)
        try:
            async with watching(silence, timeout_s=broker_timeout_s):
                await consumer.start()
                ends = await consumer.end_offsets(*consumer.assignment())
                await seek_to_start(consumer, ReadStart(end="latest"), ends)
                async with producing as producer:
                    await producer.partition_count(self._topic)
                    with displayed("measuring", self.measurement.shown, total=self._records):
                        await self._exchange(producer, consumer, broker_timeout_s)
        finally:
            self.measurement.missing = self._pending
            await consumer.close()

    async def _exchange(
        self, producer: Producer, consumer: Consumer[bytes, bytes], timeout_s: float
    ) -> None:
        batches = consumer.batches()
        self.measurement.start()
        schedule = None
        if self._throughput is not None:
            schedule = Schedule(time.monotonic_ns(), self._throughput)
        (padding,) = RandomValues(self._record_size).take(1)
        padding = padding[STAMP_BYTES:]
        for number in range(self._records):
            if schedule is not None:
                await schedule.wait(number)
            stamp = self._id + number.to_bytes(STAMP_BYTES - len(self._id))
            arriving = asyncio.ensure_future(_arrival_ns(batches, stamp))
            self._sent += 1
            sent_ns = time.monotonic_ns()
            try:
                await producer.send(self._topic, stamp + padding)
                async with asyncio.timeout(timeout_s):
                    arrived_ns = await arriving
            except TimeoutError:
                raise BrokerUnavailable(
                    f"record {number + 1:,} is acknowledged, and the consumer did not get it "
                    f"within {timeout_s:g} s"
                ) from None
            finally:
                arriving.cancel()
            self.measurement.latency.add(arrived_ns - sent_ns)
            self.measurement.count(1, self._record_size)


async def _arrival_ns(batches: AsyncIterator[RecordBatch[bytes, bytes]], stamp: bytes) -> int:
    """When the record with the stamp has arrived; the records before it are others'."""
    async for batch in batches:
        now_ns = time.monotonic_ns()
        if any(value is not None and value.startswith(stamp) for value in batch.values()):
            return now_ns
    raise AssertionError("the batches of a consumer have no end")
