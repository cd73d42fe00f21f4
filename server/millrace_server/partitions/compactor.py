"""Compaction in the background: one partition at a time, in chunks, at a bounded pace.

The shell around `log.compaction.cleaning`. Owns when a partition is compacted, how fast it is read,
and the log lines. A worker thread reads and writes. The task waits between two chunks, so that
producers and consumers have disk and interpreter to themselves most of the time.

Lifecycle: `run` until cancelled. The pass under way ends with its piece then, and what it has not
put in force is removed; so it does when the topic is deleted.
"""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress

from millrace_server.disk.worker import shielded
from millrace_server.environment.seams import Environment
from millrace_server.log import PASSING_ERRNOS, Cleaning, CorruptLog
from millrace_server.logs import FAILURE_LINE_MS, LogRateLimiter, get_logger
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable

log = get_logger("millrace.compactor")


class Compactor:
    """The background task. `bytes_per_second` are read, `keys_max` are known at a time."""

    def __init__(
        self,
        partitions: PartitionTable,
        env: Environment,
        *,
        interval_ms: int,
        bytes_per_second: int,
        keys_max: int,
    ) -> None:
        self._partitions = partitions
        self._env = env
        self._interval_ms = interval_ms
        self._bytes_per_second = bytes_per_second
        self._keys_max = keys_max
        self._lines = LogRateLimiter(env.clock, lines=1, period_ms=FAILURE_LINE_MS)

    async def run(self) -> None:
        """Waits, cleans every partition where that is due, and begins again."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            for partition in self._partitions:
                if not partition.config.compacts:
                    continue
                try:
                    await self.look_after(partition)
                except Exception:
                    # One partition's trouble must not end the compaction of all others.
                    log.exception(
                        "compaction failed", topic=partition.topic, partition=partition.number
                    )
                await asyncio.sleep(0)

    async def look_after(self, partition: Partition) -> None:
        """Cleans one partition, if that is due, from its first segment to its last."""
        async with partition.background:
            try:
                await self._clean(partition)
            except CorruptLog as error:
                partition.is_cleanable = False
                log.error(
                    "partition cannot be compacted until the next start",
                    topic=partition.topic,
                    partition=partition.number,
                    error=str(error),
                )
            except OSError as error:
                self._take_failure(partition, error)

    async def _clean(self, partition: Partition) -> None:
        """Raises what `Cleaning.step` does."""
        cleaning = partition.begin_cleaning(self._env.clock.wall_ms(), keys_max=self._keys_max)
        if cleaning is None:
            return
        begun_ms = self._env.clock.monotonic_ms()
        try:
            is_finished = await self._carry_out(partition, cleaning)
        finally:
            await shielded(self._env.spawn.blocking(cleaning.close))
        report = cleaning.report
        log.info(
            "partition compacted" if is_finished else "compaction ended early",
            topic=partition.topic,
            partition=partition.number,
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
            records_dropped=report.records_dropped,
            keys=report.keys,
            is_key_map_full=report.is_map_full,
            clean_up_to=cleaning.cleanliness.end_offset,
            duration_ms=self._env.clock.monotonic_ms() - begun_ms,
        )

    async def _carry_out(self, partition: Partition, cleaning: Cleaning) -> bool:
        """Takes step after step; False if the partition is needed for something else."""
        while not partition.ending.is_set():
            done = await shielded(self._env.spawn.blocking(cleaning.step))
            if done is None:
                partition.finish_cleaning(cleaning)
                return True
            if isinstance(done, int):
                await _pause(partition.ending, done / self._bytes_per_second)
            elif not partition.swap(done):
                await shielded(self._env.spawn.blocking(done.discard))
                return False
        return False

    def _take_failure(self, partition: Partition, error: OSError) -> None:
        """A disk that is full may have room again; one that fails a write has to be stopped."""
        if error.errno not in PASSING_ERRNOS:
            partition.fail(error)
            return
        if error.errno == errno.ENOENT:
            # Retention took a segment that was about to be read.
            return
        suppressed = self._lines.take()
        if suppressed is not None:
            log.warning(
                "compaction is put off",
                topic=partition.topic,
                partition=partition.number,
                error=str(error),
                suppressed=suppressed,
            )


async def _pause(ending: asyncio.Event, seconds: float) -> None:
    """Waits, but not when there is something to end for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ending.wait()
