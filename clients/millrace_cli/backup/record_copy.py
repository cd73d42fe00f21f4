"""The copy of records from a cluster into the new files of a backup.

Owns the reads. A consumer follows leaders, checks CRCs and gives batches as they are stored; what
belongs to the backup is decided batch by batch. A partition is read to the end of its cut while
retention, compaction and rolls go on, and from its start once more where its log is another one
than the backup's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any
from uuid import UUID

from millrace.admin import Admin
from millrace.consumer import Consumer
from millrace.errors import MillraceError
from millrace.records import RecordBatch, TopicPartition
from millrace_cli.backup.directory import PartitionFiles
from millrace_cli.backup.manifest import BackupPartition, LastBatch
from millrace_cli.backup.plan import CopyPlan, SourceLog, is_continued, kept_files
from millrace_cli.exits import BrokerUnavailable, CommandError
from millrace_protocol.records import batch_ranges, read_header

FETCH_BYTES = 4 << 20
BUFFER_BYTES = 32 << 20
"""Bytes that are read ahead of the files: with the room of connections, the memory of a backup."""
CHECK_S = 1.0
"""After so long without a batch the cluster is asked whether there will be one."""
OnBytes = Callable[[int], None]


class PartitionCopy:
    """One partition from its plan to its files."""

    def __init__(
        self, where: TopicPartition, log: SourceLog, plan: CopyPlan, files: PartitionFiles
    ) -> None:
        self.where = where
        self.log = log
        self.files = files
        self.start_offset = log.start_offset
        self.planned_bytes = log.new_bytes if plan.kept else log.size_bytes
        """About what will be read."""
        self._last: LastBatch | None = plan.expected
        self._kept = plan.kept
        self._expected: LastBatch | None = plan.expected
        self.position = plan.from_offset
        self._has_begun = False

    @property
    def is_done(self) -> bool:
        """Whether the end is reached."""
        return self._expected is None and self.position >= self.log.end_offset

    def begin_anew(self) -> None:
        """Copies all of the log; what was copied and kept is another log's. Raises `OSError`."""
        self.files.remove()
        self.start_offset = self.log.start_offset
        self._kept, self._last, self._expected = (), None, None
        self.position, self._has_begun = self.log.start_offset, False

    def take(self, batches: memoryview) -> bool:
        """Writes what belongs to the backup; False if the log is not that of the plan. `OSError`.

        `batches` are whole ones of the log, the first with `position` or behind it.
        """
        begin, end, first_offset = 0, 0, self.position
        for batch, batch_end, base_offset, last_offset in batch_ranges(batches):
            if last_offset >= self.log.end_offset:
                self.position = self.log.end_offset
                break
            header = read_header(batches, batch)
            found = LastBatch(base_offset, header.partition_leader_epoch, header.crc)
            expected, self._expected = self._expected, None
            if expected is not None:
                if not is_continued(self.log, expected, found):
                    return False
            elif base_offset < self.position and self._has_begun:
                # The consumer went back: a new leader lacks records that were copied.
                return False
            if expected is None or base_offset > expected.base_offset:
                if base_offset > self.position and not self.log.is_compacted:
                    self._lose_before(base_offset)
                if not end:
                    begin, first_offset = batch, base_offset
                end, self._last = batch_end, found
            self.position, self._has_begun = last_offset + 1, True
            end_offset = self.position
        if end:
            self.files.write(batches[begin:end], start_offset=first_offset, end_offset=end_offset)
        return True

    def end(self) -> None:
        """Ends the copy where retention has deleted the rest up to the end."""
        self._expected = None
        self._lose_before(self.log.end_offset)
        self.position = self.log.end_offset

    def result(self) -> BackupPartition:
        """The partition as the manifest has it."""
        files = kept_files((*self._kept, *self.files.files), self.start_offset)
        last = self._last if files else None
        return BackupPartition(self.start_offset, self.log.end_offset, files, last)

    def _lose_before(self, offset: int) -> None:
        """Retention was faster: the log begins at `offset` now."""
        self.start_offset = max(self.start_offset, offset)


class RecordCopy:
    """Copies all partitions with one consumer. A topic that is deleted meanwhile is left out."""

    def __init__(
        self,
        admin: Admin,
        consumer: Consumer[bytes, bytes],
        topic_ids: dict[str, UUID],
        copies: Iterable[PartitionCopy],
        *,
        timeout_s: float,
        on_bytes: OnBytes,
    ) -> None:
        """`topic_ids` are those of the plan, by name. `on_bytes` takes the bytes of each fetch."""
        self._admin = admin
        self._consumer = consumer
        self._topic_ids = topic_ids
        self._open = {copy.where: copy for copy in copies if not copy.is_done}
        self._timeout_s = timeout_s
        self._on_bytes = on_bytes
        self.deleted: set[str] = set()
        """Topics that were deleted, and made anew or not."""

    async def run(self) -> None:
        """Raises `BrokerUnavailable`, `CommandError`, `MillraceError` and `OSError`."""
        consumer = self._consumer
        if self._open:
            consumer.assign(self._open)
        for where, copy in self._open.items():
            consumer.seek(where, copy.position)
        batches = consumer.batches()
        silent_s = 0.0
        pending: asyncio.Future[RecordBatch[bytes, bytes]] | None = None
        try:
            while self._open:
                pending = pending or asyncio.ensure_future(_next(batches))
                done, _ = await asyncio.wait([pending], timeout=CHECK_S)
                if not done:
                    silent_s += CHECK_S
                    await self._check_open(silent_s)
                    continue
                silent_s = 0.0
                try:
                    self._take(pending.result())
                except MillraceError:
                    # Of a topic that is gone, or of the copy.
                    if not await self._leave_out_deleted():
                        raise
                    batches = consumer.batches()
                finally:
                    pending = None
        finally:
            if pending is not None:
                pending.cancel()
                with suppress(asyncio.CancelledError, MillraceError):
                    await pending
        await self._leave_out_deleted()

    def _take(self, records: RecordBatch[Any, Any]) -> None:
        copy = self._open.get(records.where)
        if copy is None:
            return
        self._on_bytes(len(records.view))
        if not copy.take(records.view):
            copy.begin_anew()
            self._consumer.seek(copy.where, copy.position)
        self._close_if_done(copy)

    def _close_if_done(self, copy: PartitionCopy) -> None:
        if copy.is_done:
            del self._open[copy.where]
            self._consumer.pause(copy.where)

    async def _check_open(self, silent_s: float) -> None:
        """No batch came: ends the copies for which none will come."""
        if silent_s > self._timeout_s:
            raise BrokerUnavailable(
                f"no broker has sent records of {next(iter(self._open))} for {silent_s:.0f} s"
            )
        with suppress(MillraceError):
            await self._leave_out_deleted()
        try:
            starts = await self._admin.list_offsets(dict.fromkeys(self._open, "earliest"))
            ends = await self._admin.list_offsets(dict.fromkeys(self._open, "latest"))
        except MillraceError:
            return
        for copy in [*self._open.values()]:
            if ends[copy.where].offset < copy.log.end_offset:
                raise CommandError(
                    f"{copy.where} has lost records during the backup, because its leader was "
                    "elected uncleanly; take the backup again"
                )
            if starts[copy.where].offset >= copy.log.end_offset:
                copy.end()
                self._close_if_done(copy)

    async def _leave_out_deleted(self) -> bool:
        """Whether a topic was deleted since the last time."""
        names = [name for name in self._topic_ids if name not in self.deleted]
        found = {
            outcome.name: outcome.value.topic_id
            for outcome in await self._admin.describe_topics(names)
            if outcome.value is not None
        }
        gone = {name for name in names if found.get(name) != self._topic_ids[name]}
        self.deleted |= gone
        for where in [where for where in self._open if where.topic in gone]:
            del self._open[where]
            self._consumer.pause(where)
        return bool(gone)


async def _next(  # a coroutine, as a task needs; `anext` is an awaitable
    batches: AsyncIterator[RecordBatch[bytes, bytes]],
) -> RecordBatch[bytes, bytes]:
    return await anext(batches)
