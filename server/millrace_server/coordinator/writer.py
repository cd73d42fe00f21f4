"""Writes the appends of one shard to its partition, in order, and reports each in that order.

Owns the fencing of writes: a writer appends in the leader epoch of its shard alone. Small appends
are written at once; a large one is encoded in chunks that the fair scheduler places between other
work, and later appends queue behind it. Kafka's `PartitionWriter`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import encode_batch, read_header
from millrace_server.api_error import ApiError
from millrace_server.coordinator.shard import Append, RecordSerde
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition

log = get_logger("millrace.coordinator")
CHUNK_RECORDS = 100
"""Encoded in one go, some 200 us."""

_COORDINATOR_CODES = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

EncodedRecord = tuple[bytes, bytes | None]


def coordinator_error(error: ApiError) -> ApiError:
    """An error of the partition, as clients of the coordinator know it; the same as Kafka's."""
    code = _COORDINATOR_CODES.get(error.code)
    return error if code is None else ApiError(code, error.message)


@dataclass(slots=True, eq=False)
class _InFlight:
    """An append that is not reported yet."""

    append: Append[Any]
    has_ended: bool = False
    error: ApiError | None = None


class PartitionWriter:
    """The appends of one shard in one leader epoch. Nothing is reported after `close`.

    `on_ended(append_id, error)` is called for each append in order; the error is None when it is
    below the high watermark. `on_lost(error)` is called once, after which the writer is closed: it
    is unknown whether the appends in flight are durable.
    """

    def __init__(
        self,
        partition: Partition,
        epoch: int,
        serde: RecordSerde[Any],
        env: Environment,
        scheduler: FairScheduler,
        *,
        on_ended: Callable[[int, ApiError | None], None],
        on_lost: Callable[[ApiError], None],
    ) -> None:
        self._partition = partition
        self._epoch = epoch
        self._serde = serde
        self._env = env
        self._scheduler = scheduler
        self._on_ended = on_ended
        self._on_lost = on_lost
        self._in_flight: deque[_InFlight] = deque()
        self._queued: deque[_InFlight] = deque()
        self._encoding: asyncio.Task[None] | None = None
        self._is_reporting = False

    def append(self, append: Append[Any]) -> None:
        """Writes behind all earlier appends."""
        entry = _InFlight(append)
        self._in_flight.append(entry)
        if self._encoding is not None:
            self._queued.append(entry)
        elif len(append.records) <= CHUNK_RECORDS:
            self._write(entry, list(map(self._serde.encode, append.records)))
        else:
            self._queued.append(entry)
            self._encoding = self._env.spawn.task(self._write_queued(), name="coordinator append")

    def close(self) -> None:
        """Drops what is not written; what is written may become durable and is not reported."""
        self._in_flight.clear()
        self._queued.clear()
        if self._encoding is not None:
            self._encoding.cancel()

    async def _write_queued(self) -> None:
        try:
            while self._queued:
                entry = self._queued[0]
                encoded: list[EncodedRecord] = []
                for start in range(0, len(entry.append.records), CHUNK_RECORDS):
                    await self._scheduler.yield_()
                    chunk = entry.append.records[start : start + CHUNK_RECORDS]
                    encoded += map(self._serde.encode, chunk)
                self._queued.popleft()
                self._write(entry, encoded)
        except Exception as error:
            log.exception("append not written", partition=self._partition.number)
            self._lose(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
        finally:
            self._encoding = None

    def _write(self, entry: _InFlight, encoded: Sequence[EncodedRecord]) -> None:
        try:
            end_offset = self._append(encoded)
        except CORE_ERRORS as error:
            entry.has_ended, entry.error = True, coordinator_error(as_api_error(error))
            self._report()
        else:
            self._partition.on_ack(end_offset, partial(self._on_ack, entry))

    def _append(self, encoded: Sequence[EncodedRecord]) -> int:
        partition, now_ms = self._partition, self._env.clock.wall_ms()
        partition.check_leader()
        if partition.leader_epoch != self._epoch:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"The coordinator on {partition.topic}-{partition.number} was loaded in leader "
                f"epoch {self._epoch}, and the partition is in epoch {partition.leader_epoch}; "
                "find the coordinator again",
            )
        keys, values = zip(*encoded, strict=True)
        batch = encode_batch(values, keys=keys, timestamps_ms=now_ms)
        appended = partition.append(memoryview(batch), read_header(batch), now_ms=now_ms)
        return appended.last_offset + 1

    def _on_ack(self, entry: _InFlight, error: Exception | None) -> None:
        if not self._in_flight:
            return  # Closed.
        if error is not None:
            self._lose(coordinator_error(as_api_error(error)))
            return
        entry.has_ended = True
        self._report()

    def _report(self) -> None:
        """Reports the appends that have ended, up to the first that has not."""
        if self._is_reporting:
            return
        self._is_reporting = True
        try:
            while self._in_flight and self._in_flight[0].has_ended:
                ended = self._in_flight.popleft()
                self._on_ended(ended.append.append_id, ended.error)
        finally:
            self._is_reporting = False

    def _lose(self, error: ApiError) -> None:
        self.close()
        self._on_lost(error)
