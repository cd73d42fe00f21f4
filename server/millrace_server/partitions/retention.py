"""RetentionLoop: retention, checkpoints and expired state, in the background.

One task walks over the partitions at an interval and asks each for what is due; the blocking
part is done by the partition's flush, in a worker thread.
"""

from __future__ import annotations

import asyncio

from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.retention_clock import HOLD_MS, RetentionClock

log = get_logger("millrace.housekeeping")


class RetentionLoop:
    """The background task; `run` until cancelled."""

    def __init__(self, partitions: PartitionTable, env: Environment, *, interval_ms: int) -> None:
        self._partitions = partitions
        self._env = env
        self._interval_ms = interval_ms
        self._time = RetentionClock(
            wall_ms=env.clock.wall_ms(), monotonic_ms=env.clock.monotonic_ms()
        )

    async def run(self) -> None:
        """Waits, looks after every partition, and begins again."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            for partition in self._partitions:
                try:
                    self.look_after(partition)
                except Exception:
                    # One partition's trouble must not end the retention of all others.
                    log.exception(
                        "housekeeping failed", topic=partition.topic, partition=partition.number
                    )
                await asyncio.sleep(0)

    def look_after(self, partition: Partition) -> None:
        """Does what is due for one partition now."""
        removed = partition.run_retention(self._now_ms())
        if removed:
            log.info(
                "segments removed",
                topic=partition.topic,
                partition=partition.number,
                segments=removed,
                log_start_offset=partition.start_offset,
            )

    def _now_ms(self) -> int:
        clock, was_holding = self._env.clock, self._time.is_holding
        wall_ms = clock.wall_ms()
        now_ms = self._time.now_ms(wall_ms=wall_ms, monotonic_ms=clock.monotonic_ms())
        if self._time.is_holding and not was_holding:
            log.warning(
                "the wall clock has jumped forward; retention does not follow it at once",
                jump_ms=wall_ms - now_ms,
                hold_ms=HOLD_MS,
            )
        return now_ms
