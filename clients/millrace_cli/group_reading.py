"""`millrace consume --group`: records to stdout, shared with the other members of a group.

Owns when it has come to its end, and the commits: what was written is committed before more is
asked for, so that a kill in between prints some records twice and leaves out none.
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
from millrace_cli.record_text import AnyRecord, ToText, records_before

LOOK_AROUND_S = 0.1
"""A member is not told that others have taken what it waits for, so it looks as often."""


@dataclass(slots=True)
class GroupReading:
    """One run of the command."""

    topic: str
    group: str
    start: Start
    count: int | None
    follow: bool
    to_text: ToText

    async def run(self, servers: str) -> Exit:
        """Reads what the group gives it until the end, the count, or an interrupt."""
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
        """The batches that come, until everything the member has is at its end."""
        batches = consumer.batches()
        coming: asyncio.Future[RecordBatch[bytes, bytes]] | None = None
        try:
            while self.follow or not await _is_at_end(consumer, ends):
                if coming is None:
                    coming = asyncio.ensure_future(anext(batches))
                await asyncio.wait([coming], timeout=None if self.follow else LOOK_AROUND_S)
                if coming.done():
                    batch, coming = coming.result(), None
                    yield batch
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait([coming])

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
                f"millrace: {where} went to another member, who prints it again up to {offset}: "
                f"{outcome.error}",
                file=sys.stderr,
                flush=True,
            )


async def _is_at_end(consumer: Consumer[bytes, bytes], ends: Mapping[TopicPartition, int]) -> bool:
    """Whether the member has been given its part, if any is left for it, and has read all of it."""
    membership = consumer.health().group
    if membership is None or membership.state != "stable":
        return False
    for where in consumer.assignment():
        if await consumer.position(where) < ends.get(where, 0):
            return False
    return True
