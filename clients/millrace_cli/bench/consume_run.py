"""The records of a topic, read and decoded as fast as the consumer can."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from millrace.consumer import Consumer
from millrace.records import TopicPartition
from millrace_cli.bench.measurement import Measurement
from millrace_cli.broker_watch import ConsumerSilence, watching
from millrace_cli.formats.record_text import records_before
from millrace_cli.progress_display import displayed
from millrace_cli.read_range import batches_until


class ConsumeRun:
    """One run: from the beginning of a topic to the ends that its partitions have at the start.

    A latency is the wait for one batch: from asking the consumer to having it.
    """

    def __init__(self, topic: str, *, records: int | None) -> None:
        """With `records` it ends after so many."""
        self.measurement = Measurement(records)
        self._topic = topic
        self._records = records

    async def run(
        self, servers: str, settings: Mapping[str, Any], *, broker_timeout_s: float
    ) -> None:
        """Reads all records. The run begins before the consumer connects."""
        measurement = self.measurement
        consumer = Consumer(servers, self._topic, start="earliest", **settings)
        silence = ConsumerSilence(consumer, servers=servers)
        measurement.start()
        try:
            async with watching(silence, timeout_s=broker_timeout_s):
                await consumer.start()
                ends = await self._unread(consumer)
                with displayed("consuming", measurement.shown, total=measurement.records_max):
                    if ends:
                        await self._read(consumer, ends)
        finally:
            await consumer.close()

    async def _unread(self, consumer: Consumer[bytes, bytes]) -> dict[TopicPartition, int]:
        """The ends of the partitions that have records. Reads no others."""
        partitions = consumer.assignment()
        starts = await consumer.beginning_offsets(*partitions)
        ends = await consumer.end_offsets(*partitions)
        unread = {where: end for where, end in ends.items() if starts[where] < end}
        offsets = sum(end - starts[where] for where, end in unread.items())
        if self._records is None or offsets < self._records:
            self.measurement.records_max = offsets
        consumer.assign(unread)
        return unread

    async def _read(
        self, consumer: Consumer[bytes, bytes], ends: Mapping[TopicPartition, int]
    ) -> None:
        batches = batches_until(consumer, ends)
        while True:
            asked_ns = time.monotonic_ns()
            batch = await anext(batches, None)
            if batch is None:
                return
            self.measurement.latency.add(time.monotonic_ns() - asked_ns)
            records = records_before(batch, ends[batch.where])
            if self._records is not None:
                records = records[: self._records - self.measurement.records]
            size = sum(len(each.key or b"") + len(each.value or b"") for each in records)
            self.measurement.count(len(records), size)
            if self.measurement.records == self._records:
                return
