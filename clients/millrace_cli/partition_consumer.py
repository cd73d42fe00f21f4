"""`millrace consume` without a group: records of partitions to stdout.

Owns one run: the partitions, and when all of them are at their ends. `read_range` has the offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millrace.consumer import Consumer
from millrace.records import TopicPartition
from millrace_cli.broker_watch import ConsumerSilence, watching
from millrace_cli.exits import CommandError, Exit
from millrace_cli.formats.record_text import Formatter, records_before
from millrace_cli.read_range import ReadStart, batches_until, end_offsets, seek_to_start
from millrace_cli.record_output import RecordOutput


@dataclass(slots=True)
class PartitionConsumer:
    """One run of the command."""

    topics: tuple[str, ...]
    partitions: list[int]
    start: ReadStart
    until_ms: int | None
    count: int | None
    follow: bool
    formatter: Formatter
    settings: Mapping[str, Any]
    broker_timeout_s: float

    async def run(self, servers: str) -> Exit:
        """Reads until the end, the count, or an interrupt."""
        output = RecordOutput()
        consumer = Consumer(servers, *self.topics, **self.settings)
        silence = ConsumerSilence(consumer, output, servers=servers)
        try:
            async with watching(silence, timeout_s=self.broker_timeout_s):
                await consumer.start()
                ahead = await self._prepare(consumer)
                if self.follow or ahead:
                    await self._print(consumer, ahead, output)
        finally:
            await consumer.close()
            output.close()
        return Exit.OK

    async def _prepare(self, consumer: Consumer[bytes, bytes]) -> dict[TopicPartition, int]:
        """Moves the consumer to its start. Returns the ends to read up to, none with `follow`."""
        wanted = self._wanted(consumer.assignment())
        if self.partitions:
            consumer.assign(wanted)
        logs = await consumer.end_offsets(*wanted)
        await seek_to_start(consumer, self.start, logs)
        if self.follow:
            return {}
        ends = logs
        if self.until_ms is not None:
            ends = await end_offsets(consumer, wanted, self.until_ms)
        ahead = {w: end for w, end in ends.items() if await consumer.position(w) < end}
        consumer.assign(ahead)
        return ahead

    def _wanted(self, known: list[TopicPartition]) -> list[TopicPartition]:
        if not self.partitions:
            return known
        wanted = [TopicPartition(t, p) for t in self.topics for p in sorted({*self.partitions})]
        for where in wanted:
            if where not in known:
                count = sum(each.topic == where.topic for each in known)
                raise CommandError(
                    f"{where.topic} has no partition {where.partition}; it has 0 to {count - 1}"
                )
        return wanted

    async def _print(
        self,
        consumer: Consumer[bytes, bytes],
        ahead: dict[TopicPartition, int],
        output: RecordOutput,
    ) -> None:
        """Prints records up to the `ahead` offsets, exclusive; without them, until an interrupt."""
        left = self.count
        async for batch in batches_until(consumer, ahead):
            records = records_before(batch, ahead.get(batch.where))
            if left is not None:
                records = records[:left]
                left -= len(records)
            # A slow reader of the pipe delays the fetches, which bounds memory.
            await output.write([self.formatter(record) for record in records])
            if left == 0:
                return
