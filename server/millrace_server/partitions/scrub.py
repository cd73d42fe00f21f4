"""Scrub: checks the durable batches in the background, before a reader needs them.

A consumer that reads old data finds corruption too late to restore it from a copy that was
thrown away meanwhile. Owns the pace and the order; one piece at a time is checked by a worker
thread. Reads through files of its own, so that it neither keeps segments open nor costs anybody
pages of the cache: what is in the cache is checked there, all else on the disk.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from typing import TypeVar

from millrace_server.environment.seams import ColdReads, Environment, File
from millrace_server.log import CorruptLog, DurableSegment
from millrace_server.logs import get_logger
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable

T = TypeVar("T")
log = get_logger("millrace.scrub")
PIECE_BYTES = 256 << 10
"""Checked by a thread at once: less than a millisecond of reading on most disks."""
FIRST_PASS_MS = 60_000
"""After the start, when the disk has other things to do."""


@dataclass(slots=True)
class Scrubbed:
    """What one pass has looked at, and found."""

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    corrupt_ranges: int = 0


class Scrub:
    """The background task; `run` until cancelled."""

    def __init__(
        self,
        partitions: PartitionTable,
        env: Environment,
        *,
        bytes_per_second: int,
        interval_ms: int,
        cold_reads: ColdReads | None,
    ) -> None:
        self._partitions = partitions
        self._env = env
        self._bytes_per_second = bytes_per_second
        self._interval_ms = interval_ms
        self._cold_reads = cold_reads

    async def run(self) -> None:
        """Waits, goes over all that is durable, and begins again."""
        clock = self._env.clock
        wait_ms = min(FIRST_PASS_MS, self._interval_ms)
        while True:
            await asyncio.sleep(wait_ms / 1000)
            began_ms = clock.monotonic_ms()
            found = await self.pass_over()
            took_ms = clock.monotonic_ms() - began_ms
            log.info(
                "scrubbed",
                partitions=found.partitions,
                segments=found.segments,
                size_bytes=found.size_bytes,
                corrupt_ranges=found.corrupt_ranges,
                took_ms=took_ms,
            )
            wait_ms = max(0, self._interval_ms - took_ms)

    async def pass_over(self) -> Scrubbed:
        """Checks everything once. A log remembers and reports its corrupt ranges."""
        found = Scrubbed()
        for partition in self._partitions:
            try:
                await self._scrub(partition, found)
            except Exception:
                # One partition's trouble must not keep the others from being looked at.
                log.exception("scrub failed", topic=partition.topic, partition=partition.number)
            found.partitions += 1
        return found

    async def _scrub(self, partition: Partition, found: Scrubbed) -> None:
        for segment in partition.log.reader.durable_segments():
            file = await self._opened(segment.path)
            if file is None:
                # Retention was faster.
                continue
            try:
                await self._scrub_segment(segment, file, found)
            finally:
                file.release()
            found.segments += 1

    async def _opened(self, path: str) -> File | None:
        opening = self._env.spawn.blocking(self._env.disk.open, path)
        try:
            return await _done(opening)
        except asyncio.CancelledError:
            if opening.exception() is None:
                opening.result().release()
            raise
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return None

    async def _scrub_segment(self, segment: DurableSegment, file: File, found: Scrubbed) -> None:
        passing = file if self._cold_reads is None else self._cold_reads.passing(file)
        while not segment.is_done:
            position = segment.position
            try:
                await _done(self._env.spawn.blocking(segment.check, passing, PIECE_BYTES))
            except CorruptLog as error:
                segment.skip(error)
                found.corrupt_ranges += 1
            size_bytes = segment.position - position
            found.size_bytes += size_bytes
            await asyncio.sleep(size_bytes / self._bytes_per_second)


async def _done(call: asyncio.Future[T]) -> T:
    """Waits for a thread, cancelled or not: the file it works on is closed afterwards."""
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        while not call.done():
            await asyncio.wait([call])
        raise
