"""DeleteRecords: partitions begin at a later offset (wire_spec.md W-4.27).

Owns what may be deleted. A partition moves the start of its log and makes that durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from millrace_protocol.acls import Operation
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.delete_records import HIGH_WATERMARK
from millrace_server.api_error import ApiError
from millrace_server.log import OffsetOutOfRange
from millrace_server.logs import get_logger
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.services.request_context import RequestContext
from millrace_server.topic_config import INTERNAL_TOPIC_PREFIX

CHUNK_PARTITIONS = 20
"""Moved in one chunk, some 200 us."""
REPLICAS_WAIT_MS = 30_000
"""How long a deletion waits for replicas in sync; Kafka's default timeout of the request."""

log = get_logger("millrace.topics")


class Deletion(NamedTuple):
    """A partition, and the first offset that stays; `HIGH_WATERMARK` keeps no readable record."""

    topic: str
    partition: int
    offset: int


class _Moved(NamedTuple):
    """A partition whose log begins at `start_offset`; `durable` is done when that is durable."""

    partition: Partition
    start_offset: int
    durable: asyncio.Future[None]


class DeleteRecordsService:
    """Deletes the oldest records of partitions."""

    def __init__(self, partitions: PartitionTable, scheduler: FairScheduler) -> None:
        self._partitions = partitions
        self._scheduler = scheduler

    async def delete(
        self, context: RequestContext, deletions: Sequence[Deletion]
    ) -> list[int | ApiError]:
        """Where each partition begins afterwards, durably; or why it was refused.

        Consumers cannot read the records any more as soon as the start has moved. A crash before
        the answer, or another leader, may bring them back; one after it does not: no replica in
        sync has them.
        """
        moved: list[_Moved | ApiError] = []
        for deletion in deletions:
            moved.append(self._move(context, deletion))
            if not len(moved) % CHUNK_PARTITIONS:
                await self._scheduler.yield_()
        return [each if isinstance(each, ApiError) else await _settled(each) for each in moved]

    def _move(self, context: RequestContext, deletion: Deletion) -> _Moved | ApiError:
        try:
            context.check_topic(Operation.DELETE, deletion.topic)
            partition = self._partitions.get(deletion.topic, deletion.partition)
            _check(partition)
            offset = deletion.offset
            if offset == HIGH_WATERMARK:
                offset = partition.high_watermark
            elif offset < 0:
                raise OffsetOutOfRange(offset, partition.start_offset, partition.high_watermark)
            partition.advance_start(offset)
        except CORE_ERRORS as error:
            return as_api_error(error)
        start_offset = partition.start_offset
        return _Moved(partition, start_offset, partition.start_durable(start_offset))


async def _settled(moved: _Moved) -> int | ApiError:
    replica, offset = moved.partition.replica, moved.start_offset
    try:
        await moved.durable
        if replica is not None:
            async with asyncio.timeout(REPLICAS_WAIT_MS / 1000):
                await replica.deleted(offset)
    except TimeoutError:
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"The records before offset {offset} cannot be read any more, and a replica in sync "
            "still has them; send the request again",
        )
    except CORE_ERRORS as error:
        return as_api_error(error)
    log.info(
        "records deleted",
        topic=moved.partition.topic,
        partition=moved.partition.number,
        log_start_offset=moved.start_offset,
    )
    return moved.start_offset


def _check(partition: Partition) -> None:
    """Raises `ApiError` for partitions whose records only the broker deletes."""
    if partition.topic.startswith(INTERNAL_TOPIC_PREFIX):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic {partition.topic!r} belongs to the broker, which deletes its records itself",
        )
    if not partition.config.deletes:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Topic {partition.topic!r} has cleanup.policy=compact: compaction alone deletes its "
            "records. Send null values for the keys to delete, or set cleanup.policy to "
            "compact,delete first",
        )
