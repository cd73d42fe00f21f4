"""Committed records of a replica, for a broker whose own copy of them is damaged."""

from __future__ import annotations

import uuid

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.environment.seams import Environment
from millrace_server.metadata.cache import MetadataCache
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition_table import PartitionTable

READ_BYTES_MAX = 1 << 20
"""In one response, unless the first batch is larger."""


class ReplicaReadService:
    """Reads what leader and followers of a partition have alike."""

    def __init__(self, env: Environment, cache: MetadataCache, partitions: PartitionTable) -> None:
        self._env = env
        self._cache = cache
        self._partitions = partitions

    async def read(self, topic_id: uuid.UUID, number: int, offset: int, *, max_bytes: int) -> bytes:
        """Whole batches below the high watermark, from the one that holds `offset` on.

        One at least; those of at most `max_bytes` otherwise. Raises `ApiError`.
        """
        topic = self._cache.image.topic_by_id(topic_id)
        partition = None if topic is None else self._partitions.find(topic.name, number)
        if partition is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"This broker has no replica {number} of a topic with the id {topic_id}",
            )
        try:
            found = partition.read(offset, max_bytes=max(0, min(max_bytes, READ_BYTES_MAX)))
            if found.slice is None:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Offset {offset} is not known to be committed here; try again",
                )
            try:
                return await self._env.spawn.blocking(found.slice.read)
            finally:
                found.slice.release()
        except CORE_ERRORS as error:
            raise as_api_error(error) from error
