"""`millrace consume --group`: records to stdout, as a member of a consumer group.

Owns the end of the command, and the commits. Written records are committed before the next batch is
fetched, so that after a kill the group prints some records again and omits none.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from millrace.admin import Admin
from millrace.consumer import Consumer, Start
from millrace.records import RecordBatch, TopicPartition
from millrace_cli.exits import Exit
from millrace_cli.formats.record_text import AnyRecord, ToText, records_before

POLL_S = 0.1
"""Interval to check the assignment, because a rebalance may end the wait for a record."""


@dataclass(slots=True)
class GroupConsumer:
    """One run of the command."""

    topic: str
    group: str
    start: Start
    count: int | None
    follow: bool
    to_text: ToText

    async def run(self, servers: str) -> Exit:
        """Prints records of the assigned partitions until the end, the count, or an interrupt."""
        ends = {} if self.follow else await self._ends(servers)
        async with Consumer(
            servers,
            self.topic,
            group=self.group,
            start=self.start,
            auto_commit=False,
            client_id="millrace-cli",
        ) as consumer:
            async for batch in self._batches(consumer, ends):
                end = None if self.follow else ends.get(batch.where, 0)
                records = records_before(batch, end)[: self.count]
                self._write(records)
                done = batch.next_offset if end is None else min(batch.next_offset, end)
                if self.count is not None:
                    self.count -= len(records)
                    if self.count == 0:
                        done = records[-1].offset + 1
                if done > batch.base_offset:
                    await self._commit(consumer, batch.where, done)
                if self.count == 0:
                    break
                if end is not None and batch.next_offset >= end:
                    consumer.pause(batch.where)
        return Exit.OK

    async def _ends(self, servers: str) -> dict[TopicPartition, int]:
        async with Admin(servers, client_id="millrace-cli") as admin:
            found = await admin.describe_topic(self.topic)
            answers = await admin.list_offsets(
                {(self.topic, each.partition): "latest" for each in found.partitions}
            )
        return {where: answer.offset for where, answer in answers.items()}

    async def _batches(
        self, consumer: Consumer[bytes, bytes], ends: Mapping[TopicPartition, int]
    ) -> AsyncIterator[RecordBatch[bytes, bytes]]:
        """The batches of the member, until all of its partitions are at their ends."""
        batches = consumer.batches()
        pending: asyncio.Future[RecordBatch[bytes, bytes]] | None = None
        try:
            while self.follow or not await _is_at_end(consumer, ends):
                if pending is None:
                    pending = asyncio.ensure_future(anext(batches))
                await asyncio.wait([pending], timeout=None if self.follow else POLL_S)
                if pending.done():
                    batch, pending = pending.result(), None
                    yield batch
        finally:
            if pending is not None:
                pending.cancel()
                await asyncio.wait([pending])

    def _write(self, records: list[AnyRecord]) -> None:
        sys.stdout.write("".join(map(self.to_text, records)))
        sys.stdout.flush()

    async def _commit(
        self, consumer: Consumer[bytes, bytes], where: TopicPartition, offset: int
    ) -> None:
        for outcome in (await consumer.commit({where: offset})).values():
            if outcome.error is None:
                continue
            if not outcome.is_fenced:
                raise outcome.error
            print(
                f"millrace: {where} moved to another member, which prints records up to {offset} "
                f"again: {outcome.error}",
                file=sys.stderr,
                flush=True,
            )


async def _is_at_end(consumer: Consumer[bytes, bytes], ends: Mapping[TopicPartition, int]) -> bool:
    """Whether the member has its assignment, and has read all of it."""
    membership = consumer.health().group
    if membership is None or membership.state != "stable":
        return False
    for where in consumer.assignment():
        if await consumer.position(where) < ends.get(where, 0):
            return False
    return True
