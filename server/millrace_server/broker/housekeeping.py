"""Housekeeping: retention, checkpoints and expired state, in the background.

One task walks over the partitions at an interval and asks each for what is due; the blocking
part is done by the partition's flush, in a worker thread.
"""

from __future__ import annotations

import asyncio

from millrace_server.broker.partition import Partition
from millrace_server.broker.partitions import Partitions
from millrace_server.host import Host
from millrace_server.log_lines import get_logger

log = get_logger("millrace.housekeeping")


class Housekeeping:
    """The background task; `run` until cancelled."""

    def __init__(self, partitions: Partitions, host: Host, *, interval_ms: int) -> None:
        self._partitions = partitions
        self._host = host
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
        removed = partition.tidy(self._host.clock.wall_ms())
        if removed:
            log.info(
                "segments removed",
                topic=partition.topic,
                partition=partition.number,
                segments=removed,
                log_start_offset=partition.log.start_offset,
            )
