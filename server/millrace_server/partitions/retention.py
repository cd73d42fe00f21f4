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

log = get_logger("millrace.housekeeping")


class RetentionLoop:
    """The background task; `run` until cancelled."""

    def __init__(self, partitions: PartitionTable, env: Environment, *, interval_ms: int) -> None:
        self._partitions = partitions
        self._env = env
        self._interval_ms = interval_ms

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
        removed = partition.tidy(self._env.clock.wall_ms())
        if removed:
            log.info(
                "segments removed",
                topic=partition.topic,
                partition=partition.number,
                segments=removed,
                log_start_offset=partition.log.start_offset,
            )
