"""ListOffsets: where a partition begins and ends, and where a point in time is."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from millrace_protocol.records import CorruptBatch
from millrace_server.api_error import ApiError
from millrace_server.log import Candidate, FoundTime
from millrace_server.partitions.partition import Partition
from millrace_server.services.batch_lookups import BatchLookups


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset, -1 when no record is that late, and the record's timestamp where it has one."""

    offset: int
    timestamp_ms: int = -1


def find_end(partition: Partition, which: int) -> FoundOffset:
    """The first offset, if `which` is EARLIEST, or else the one after the last readable record."""
    is_first = which == EARLIEST
    return FoundOffset(partition.log.start_offset if is_first else partition.high_watermark)


async def find_offset(
    partition: Partition, timestamp_ms: int, lookups: BatchLookups
) -> FoundOffset:
    """The first offset with at least this timestamp, or one of the named offsets.

    Looks only at what consumers may read. Raises `ApiError` for a timestamp below -3.
    """
    if timestamp_ms in (EARLIEST, LATEST):
        return find_end(partition, timestamp_ms)
    end_offset = partition.high_watermark
    if timestamp_ms == MAX_TIMESTAMP:
        timestamp_ms = partition.log.largest_timestamp(end_offset=end_offset)
        if timestamp_ms < 0:
            return FoundOffset(-1)
    elif timestamp_ms < 0:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"A timestamp of {timestamp_ms}; use -1 latest, -2 earliest, -3 largest, or 0 and more",
        )
    from_offset = partition.log.start_offset
    while True:
        async with lookups:
            candidate = partition.log.candidate_for_timestamp(
                timestamp_ms, from_offset=from_offset, end_offset=end_offset
            )
            if candidate is None:
                return FoundOffset(-1)
            found = await _first_in(candidate, timestamp_ms, lookups)
        if found is not None:
            return FoundOffset(found.offset, found.timestamp_ms)
        from_offset = candidate.next_offset


async def _first_in(
    candidate: Candidate, timestamp_ms: int, lookups: BatchLookups
) -> FoundTime | None:
    if candidate.is_certain:
        return candidate.by_header
    looked = lookups.records(candidate.batch, from_offset=candidate.by_header.offset)
    try:
        async with aclosing(looked) as chunks:
            async for records, _ in chunks:
                for offset, record_timestamp_ms, *_ in records:
                    if record_timestamp_ms >= timestamp_ms:
                        return FoundTime(record_timestamp_ms, offset)
    except (CorruptBatch, ApiError):
        # The broker never looks into a batch that it is sent, so a client may have sent one that
        # nobody can read, or that is too large to be looked into. Its header is all that is known
        # of it, and its reader is told there.
        return candidate.by_header
    return None
