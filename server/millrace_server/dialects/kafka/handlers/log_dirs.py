"""DescribeLogDirs: the data directory of this broker."""

from __future__ import annotations

from itertools import groupby

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import log_dirs as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import kafka_code
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

CHUNK_PARTITIONS = 100
"""Made into messages in one chunk, some 100 us."""


async def handle(
    services: Services,
    context: RequestContext,
    request: messages.DescribeLogDirsRequest,
    version: int,
) -> messages.DescribeLogDirsResponse:
    """Describes the one directory that a broker has; partitions that are offline are left out."""
    wanted = request.topics
    numbers = None if wanted is None else {each.topic: {*each.partitions} for each in wanted}
    try:
        found = await services.log_dirs.describe(context, numbers)
    except ApiError as error:
        return messages.DescribeLogDirsResponse(error_code=kafka_code(error.code))
    sizes = (
        size
        for size in found.partitions
        if size.error is None and (numbers is None or size.partition in numbers[size.topic])
    )
    topics: list[messages.DescribeLogDirsTopic] = []
    for name, of_topic in groupby(sizes, key=lambda size: size.topic):
        partitions: list[messages.DescribeLogDirsPartition] = []
        for size in of_topic:
            partitions.append(
                messages.DescribeLogDirsPartition(size.partition, size.size_bytes, size.offset_lag)
            )
            if not len(partitions) % CHUNK_PARTITIONS:
                await services.scheduler.yield_()
        topics.append(messages.DescribeLogDirsTopic(name, tuple(partitions)))
        await services.scheduler.yield_()
    directory = messages.DescribeLogDirsResult(
        ErrorCode.NONE if found.error is None else kafka_code(found.error.code),
        found.path,
        tuple(topics),
        found.space.total_bytes,
        found.space.usable_bytes,
    )
    return messages.DescribeLogDirsResponse(results=(directory,))
