"""Partitions around the logs that were opened for them, and the reports of what befalls them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millrace_server.environment.seams import Environment
from millrace_server.log import CorruptRange, PartitionLog
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.log_statistics import LogStatistics
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.replica_hooks import ReplicaHooks

log = get_logger("millrace.broker")


class PartitionFactory:
    """Makes the partitions of one broker. `on_failure(error)` is called when a disk has failed."""

    def __init__(
        self,
        env: Environment,
        scheduler: FairScheduler,
        statistics: LogStatistics,
        on_failure: Callable[[BaseException], None],
        *,
        on_corruption: Callable[[Partition], None],
    ) -> None:
        """`on_corruption` is told of a partition whose log has a corrupt range, known from now."""
        self._env = env
        self._scheduler = scheduler
        self._statistics = statistics
        self._on_failure = on_failure
        self._on_corruption = on_corruption
        # A disk that fails does so in many places, and each is told of once.
        self._corruption_lines = LogRateLimiter(env.clock)

    def make(
        self, topic: str, number: int, opened: PartitionLog, replica: ReplicaHooks | None = None
    ) -> Partition:
        """A partition on an opened log; `replica` decides what of it is committed."""
        return Partition(
            topic,
            number,
            opened,
            self._env,
            self._scheduler,
            on_failure=partial(self._fail, topic, number),
            on_corruption=self._report_corruption,
            statistics=self._statistics,
            replica=replica,
        )

    def _report_corruption(self, partition: Partition, found: CorruptRange) -> None:
        self._statistics.corrupt_ranges += 1
        self._on_corruption(partition)
        suppressed = self._corruption_lines.take()
        if suppressed is not None:
            log.error(
                "bytes on the disk are not what was written",
                topic=partition.topic,
                partition=partition.number,
                path=found.path,
                position=found.position,
                offset=found.offset,
                end_offset=found.end_offset,
                reason=found.message,
                suppressed=suppressed,
            )

    def _fail(self, topic: str, number: int, error: BaseException) -> None:
        # After a failed fsync it is unknown what is on the disk: the kernel has marked the pages
        # clean, and a second fsync would succeed without writing them.
        log.critical("disk fault, stopping", topic=topic, partition=number, error=str(error))
        self._on_failure(error)
