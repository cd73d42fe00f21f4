"""Loads a shard: reads a partition from its start and replays each record.

Owns the pace: reads block in a worker thread, records are replayed in chunks that the fair
scheduler places between other work. Kafka's `CoordinatorLoader`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import CorruptBatch
from millrace_server.api_error import ApiError
from millrace_server.coordinator.shard import (
    CoordinatorShard,
    RecordSerde,
    UnknownRecord,
    UnreadableRecord,
)
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.replay import READ_BYTES, records_in

log = get_logger("millrace.coordinator")
CHUNK_RECORDS = 100
"""Replayed in one go, some 200 us."""


@dataclass(slots=True)
class LoadProgress:
    """How far a load is: `offset` is the next record to replay, `end_offset` where it ends."""

    offset: int = 0
    end_offset: int = 0
    record_count: int = 0


class CoordinatorLoader:
    """Replays partitions into shards."""

    def __init__(self, serde: RecordSerde[Any], env: Environment, scheduler: FairScheduler) -> None:
        self._serde = serde
        self._env = env
        self._scheduler = scheduler

    async def load(
        self, partition: Partition, shard: CoordinatorShard[Any, Any], progress: LoadProgress
    ) -> None:
        """Replays every record that the log holds at the call.

        Waits for those above the high watermark, which an earlier shard has appended: they may
        become durable after that shard has ended. Raises `ApiError` if the partition cannot be
        read.
        """
        try:
            await self._replay(partition, shard, progress)
        except (UnreadableRecord, CorruptBatch) as error:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition.topic}-{partition.number} cannot be read, so its coordinator is not "
                f"available: {error}",
            ) from error
        except CORE_ERRORS as error:
            raise as_api_error(error) from error

    async def _replay(
        self, partition: Partition, shard: CoordinatorShard[Any, Any], progress: LoadProgress
    ) -> None:
        progress.offset = partition.start_offset
        progress.end_offset = partition.end_offset
        while progress.offset < progress.end_offset:
            if progress.offset >= partition.high_watermark:
                await partition.acked(progress.end_offset)
            found = partition.read(progress.offset, max_bytes=READ_BYTES)
            if found.slice is None:
                return
            records = await self._env.spawn.blocking(records_in, found.slice, progress.offset)
            for start in range(0, len(records), CHUNK_RECORDS):
                for offset, _, key, value, _ in records[start : start + CHUNK_RECORDS]:
                    self._replay_record(partition, shard, offset, key, value)
                progress.record_count += len(records[start : start + CHUNK_RECORDS])
                await self._scheduler.yield_()
            progress.offset = found.next_offset

    def _replay_record(
        self,
        partition: Partition,
        shard: CoordinatorShard[Any, Any],
        offset: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        record = self._serde.decode(key, value)
        if isinstance(record, UnknownRecord):
            log.warning(
                "record skipped",
                topic=partition.topic,
                partition=partition.number,
                offset=offset,
                reason=record.note,
            )
        else:
            shard.replay(record)
