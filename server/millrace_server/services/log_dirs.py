"""DescribeLogDirs: the data directory of this broker, and what each partition takes in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millrace_protocol.acls import Operation
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import DiskSpace, Environment
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.core_errors import as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.services.request_context import RequestContext

CHUNK_PARTITIONS = 100
"""Looked at in one chunk, some 100 us."""


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """One partition: the bytes of its batches, or why they are not known."""

    topic: str
    partition: int
    size_bytes: int = -1
    offset_lag: int = -1
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A data directory; `error` says why its space is not known."""

    path: str
    space: DiskSpace
    error: ApiError | None
    partitions: list[PartitionSize]


class LogDirService:
    """Measures what the partitions of this broker take."""

    def __init__(
        self, partitions: PartitionTable, env: Environment, scheduler: FairScheduler
    ) -> None:
        self._partitions = partitions
        self._env = env
        self._scheduler = scheduler

    async def describe(self, context: RequestContext, topics: Iterable[str] | None) -> LogDirectory:
        """The data directory with the partitions of `topics`, None for those of all topics.

        Raises `ApiError`.
        """
        context.check_cluster(Operation.DESCRIBE)
        error, space = None, DiskSpace(-1, -1)
        try:
            space = await self._env.spawn.blocking(self._env.disk.space)
        except OSError as refused:
            error = as_api_error(refused)
        wanted = None if topics is None else frozenset(topics)
        sizes: list[PartitionSize] = []
        for topic, number, found in sorted(self._partitions.entries(), key=lambda entry: entry[:2]):
            if wanted is None or topic in wanted:
                sizes.append(_size(topic, number, found))
                if not len(sizes) % CHUNK_PARTITIONS:
                    await self._scheduler.yield_()
        return LogDirectory(self._env.disk.path, space, error, sizes)


def _size(topic: str, number: int, found: Partition | ApiError) -> PartitionSize:
    if isinstance(found, ApiError):
        return PartitionSize(topic, number, error=found)
    lag = max(found.high_watermark - found.end_offset, 0)
    return PartitionSize(topic, number, found.size_bytes, lag)
