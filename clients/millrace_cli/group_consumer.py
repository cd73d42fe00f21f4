"""`millrace consume --group`: records to stdout, as a member of a consumer group.

Owns the end of the command, and the commits. A record is committed when all of its bytes have left
the process, and before the next batch is fetched. So after a kill, a signal or a failed write the
group prints some records again and omits none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.admin import Admin
from millrace.consumer import Consumer, Start
from millrace.records import RecordBatch, TopicPartition
from millrace_cli.broker_watch import ConsumerSilence, watching
from millrace_cli.client_identity import identity
from millrace_cli.exits import BrokerUnavailable, Exit, tell
from millrace_cli.formats.record_text import Formatter, records_before
from millrace_cli.interruption import SAY_AFTER_S, finish
from millrace_cli.read_range import end_offsets
from millrace_cli.record_output import RecordOutput

POLL_S = 0.1
"""Interval to check the assignment, because a rebalance may end the wait for a record."""
COMMIT_S = 5.0
LEAVE_S = 10.0


@dataclass(slots=True)
class GroupConsumer:
    """One run of the command."""

    topics: tuple[str, ...]
    group: str
    start: Start
    until_ms: int | None
    count: int | None
    follow: bool
    formatter: Formatter
    settings: Mapping[str, Any]
    broker_timeout_s: float

    async def run(self, servers: str) -> Exit:
        """Prints records of the assigned partitions until the end, the count, or an interrupt."""
        output = RecordOutput()
        consumer = Consumer(
            servers,
            *self.topics,
            group=self.group,
            start=self.start,
            auto_commit=False,
            **self.settings,
        )
        silence = ConsumerSilence(consumer, output, servers=servers)
        leave_s = LEAVE_S
        try:
            async with watching(silence, timeout_s=self.broker_timeout_s):
                await consumer.start()
                ends = {} if self.follow else await self._ends(consumer, servers)
                await self._print(consumer, ends, output)
        except BrokerUnavailable:
            leave_s = SAY_AFTER_S
            raise
        finally:
            leaving = f"the broker to take this member out of group {self.group}"
            await finish(consumer.close(), within_s=leave_s, waits_for=lambda: leaving)
            output.close()
        return Exit.OK

    async def _print(
        self,
        consumer: Consumer[bytes, bytes],
        ends: Mapping[TopicPartition, int],
        output: RecordOutput,
    ) -> None:
        async for batch in self._batches(consumer, ends):
            end = None if self.follow else ends.get(batch.where, 0)
            records = records_before(batch, end)[: self.count]
            done = batch.next_offset if end is None else min(batch.next_offset, end)
            if self.count is not None:
                self.count -= len(records)
                if self.count == 0:
                    done = records[-1].offset + 1
            try:
                await output.write([self.formatter(record) for record in records])
            except (asyncio.CancelledError, OSError):
                if output.whole < len(records):
                    done = records[output.whole].offset
                commit = self._commit(consumer, batch, done)
                await finish(
                    commit, within_s=COMMIT_S, waits_for=lambda: "the commit of printed records"
                )
                raise
            await self._commit(consumer, batch, done)
            if self.count == 0:
                break
            if end is not None and batch.next_offset >= end:
                consumer.pause(batch.where)

    async def _ends(
        self, consumer: Consumer[bytes, bytes], servers: str
    ) -> dict[TopicPartition, int]:
        async with Admin(servers, **identity()) as admin:
            topics = [found.unwrap() for found in await admin.describe_topics(self.topics)]
        wanted = [TopicPartition(t.name, p.partition) for t in topics for p in t.partitions]
        return await end_offsets(consumer, wanted, self.until_ms)

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

    async def _commit(
        self, consumer: Consumer[bytes, bytes], batch: RecordBatch[bytes, bytes], offset: int
    ) -> None:
        if offset <= batch.base_offset:
            return
        for outcome in (await consumer.commit({batch.where: offset})).values():
            if outcome.error is None:
                continue
            if not outcome.is_fenced:
                raise outcome.error
            tell(
                f"{batch.where} moved to another member, which prints records up to {offset} "
                f"again: {outcome.error}"
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
