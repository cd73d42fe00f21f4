"""DescribeLogDirs: the data directory of this broker."""

from __future__ import annotations

from millrace_protocol.messages.log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDir,
    LogDirPartition,
)
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.services.log_dirs import PartitionSize
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

CHUNK_PARTITIONS = 100
"""Made into messages in one chunk, some 100 us."""


async def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describes the one directory that a broker has."""
    found = await services.log_dirs.describe(context, request.topics)
    partitions: list[LogDirPartition] = []
    for size in found.partitions:
        partitions.append(_partition(size))
        if not len(partitions) % CHUNK_PARTITIONS:
            await services.scheduler.yield_()
    directory = LogDir(
        found.path,
        *outcome(found.error),
        found.space.total_bytes,
        found.space.usable_bytes,
        tuple(partitions),
    )
    return DescribeLogDirsResponse(services.cluster.node_id, (directory,))


def _partition(size: PartitionSize) -> LogDirPartition:
    return LogDirPartition(
        size.topic, size.partition, *outcome(size.error), size.size_bytes, size.offset_lag
    )
