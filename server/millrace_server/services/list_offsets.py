"""ListOffsets: where a partition begins and ends, and where a point in time is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple

from millrace_protocol.acls import Operation
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from millrace_protocol.records import CorruptBatch, Record
from millrace_server.api_error import ApiError
from millrace_server.log import ActiveProducer, Candidate, EpochEnd, FoundTime
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.services.batch_lookups import BatchLookups
from millrace_server.services.request_context import RequestContext


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset, -1 when no record is that late, and the record's timestamp where it has one.

    `leader_epoch` is the epoch of the partition. `record_epoch` is the epoch in which the record at
    the offset was written, and for the end of the partition its `leader_epoch`; -1 without an
    offset.
    """

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1
    record_epoch: int = -1


class Extent(NamedTuple):
    """Where a partition begins and ends, and what it takes."""

    start_offset: int
    high_watermark: int
    end_offset: int
    size_bytes: int


class OffsetService:
    """Finds offsets of partitions."""

    def __init__(
        self, partitions: PartitionTable, scheduler: FairScheduler, lookups: BatchLookups
    ) -> None:
        self._partitions = partitions
        self._scheduler = scheduler
        self._lookups = lookups

    def extent(self, context: RequestContext, topic: str, number: int) -> Extent:
        """Where a partition begins and ends. Raises `ApiError`."""
        context.check_topic(Operation.DESCRIBE, topic)
        partition = self._partitions.get(topic, number)
        return Extent(
            partition.start_offset,
            partition.high_watermark,
            partition.end_offset,
            partition.size_bytes,
        )

    async def find(
        self,
        context: RequestContext,
        topic: str,
        number: int,
        timestamp_ms: int,
        *,
        current_epoch: int = -1,
    ) -> FoundOffset:
        """The first offset with at least this timestamp, or one of the named offsets.

        A search by time runs between the chunks of other requests. `current_epoch` is the client's,
        -1 if it knows none. Raises `ApiError`.
        """
        context.check_topic(Operation.DESCRIBE, topic)
        try:
            partition = self._partitions.get(topic, number)
            partition.leadership.check_epoch(current_epoch, f"{topic}-{number}")
            if timestamp_ms != EARLIEST:
                partition.check_end_known()
            if timestamp_ms not in (EARLIEST, LATEST):
                await self._scheduler.yield_()
            found = await find_offset(partition, timestamp_ms, self._lookups)
        except CORE_ERRORS as error:
            raise as_api_error(error) from error
        epoch = partition.leader_epoch
        if found.offset < 0:
            record_epoch = -1
        elif timestamp_ms == LATEST:
            record_epoch = epoch
        else:
            record_epoch = partition.log.epochs.epoch_before(found.offset + 1)
        return FoundOffset(found.offset, found.timestamp_ms, epoch, record_epoch)

    def epoch_end(
        self, context: RequestContext, topic: str, number: int, epoch: int, *, current_epoch: int
    ) -> EpochEnd | None:
        """The newest epoch of a partition's log that is not above `epoch`, and where its records
        end; where all its records are of later epochs, `epoch` and the first offset of the log.
        None for a negative epoch. `current_epoch` is the client's, -1 if it knows none.

        Raises `ApiError`.
        """
        context.check_topic(Operation.DESCRIBE, topic)
        partition = self._partitions.get(topic, number)
        partition.leadership.check_epoch(current_epoch, f"{topic}-{number}")
        found = partition.log.end_offset_for_epoch(epoch)
        if found is None and epoch >= 0:
            # The records of that epoch were before the log's first one.
            return EpochEnd(epoch, partition.start_offset)
        return found

    def producers(self, context: RequestContext, topic: str, number: int) -> list[ActiveProducer]:
        """The idempotent producers that a partition knows. Raises `ApiError`."""
        context.check_topic(Operation.READ, topic)
        return self._partitions.get(topic, number).log.producers.active()


def find_end(partition: Partition, which: int) -> FoundOffset:
    """The first offset, if `which` is EARLIEST, or else the one after the last readable record."""
    is_first = which == EARLIEST
    return FoundOffset(partition.start_offset if is_first else partition.high_watermark)


async def find_offset(
    partition: Partition, timestamp_ms: int, lookups: BatchLookups
) -> FoundOffset:
    """The first offset with at least this timestamp, or one of the named offsets.

    Searches only below the high watermark. Raises `ApiError` for a timestamp below -3.
    """
    if timestamp_ms in (EARLIEST, LATEST):
        return find_end(partition, timestamp_ms)
    if timestamp_ms == MAX_TIMESTAMP:
        return await _find_largest(partition, lookups)
    if timestamp_ms < 0:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"A timestamp of {timestamp_ms}; use -1 latest, -2 earliest, -3 largest, or 0 and more",
        )
    end_offset = partition.high_watermark
    from_offset = partition.start_offset
    while True:
        async with lookups:
            candidate = partition.log.reader.candidate_for_timestamp(
                timestamp_ms, from_offset=from_offset, end_offset=end_offset
            )
            if candidate is None:
                return FoundOffset(-1)
            found = await _first_in(candidate, timestamp_ms, lookups)
        if found is not None:
            return FoundOffset(found.offset, found.timestamp_ms)
        from_offset = candidate.next_offset


async def _find_largest(partition: Partition, lookups: BatchLookups) -> FoundOffset:
    """The record with the largest timestamp of the batch that claims the largest.

    A batch may claim more than its records have, because the broker does not check that. Its own
    largest record is the answer then, and one batch is all that is read.
    """
    end_offset = partition.high_watermark
    timestamp_ms = partition.log.reader.largest_timestamp(end_offset=end_offset)
    if timestamp_ms < 0:
        return FoundOffset(-1)
    async with lookups:
        candidate = partition.log.reader.candidate_for_timestamp(
            timestamp_ms, from_offset=partition.start_offset, end_offset=end_offset
        )
        if candidate is None:
            return FoundOffset(-1)
        found = await _largest_in(candidate, lookups)
    return FoundOffset(found.offset, found.timestamp_ms)


async def _first_in(
    candidate: Candidate, timestamp_ms: int, lookups: BatchLookups
) -> FoundTime | None:
    """The first record that is late enough, None when no record is."""
    if candidate.is_certain:
        return candidate.by_header
    try:
        async with aclosing(_records_of(candidate, lookups)) as chunks:
            async for records in chunks:
                for offset, record_timestamp_ms, *_ in records:
                    if record_timestamp_ms >= timestamp_ms:
                        return FoundTime(record_timestamp_ms, offset)
    except (CorruptBatch, ApiError):
        return candidate.by_header
    return None


async def _largest_in(candidate: Candidate, lookups: BatchLookups) -> FoundTime:
    """The first of the records with the largest timestamp."""
    if candidate.is_certain:
        return candidate.by_header
    largest: FoundTime | None = None
    try:
        async with aclosing(_records_of(candidate, lookups)) as chunks:
            async for records in chunks:
                for offset, timestamp_ms, *_ in records:
                    if largest is None or timestamp_ms > largest.timestamp_ms:
                        largest = FoundTime(timestamp_ms, offset)
    except (CorruptBatch, ApiError):
        return candidate.by_header
    return largest or candidate.by_header


async def _records_of(
    candidate: Candidate, lookups: BatchLookups
) -> AsyncGenerator[Sequence[Record], None]:
    """Yields the records of the batch in chunks.

    Raises `CorruptBatch` or `ApiError` for a batch that cannot be read or is too large to be read.
    A client may have sent one, because the broker does not decode what it appends. Only the header
    of such a batch is known; its readers get the error.
    """
    looked = lookups.records(candidate.batch, from_offset=candidate.by_header.offset)
    async with aclosing(looked) as chunks:
        async for records, _ in chunks:
            yield records
