"""ListOffsets: where a partition begins and ends, and where a point in time is."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from millrace_server.broker.partition import Partition
from millrace_server.refusal import Refused


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset, -1 when no record is that late, and the record's timestamp where it has one."""

    offset: int
    timestamp_ms: int = -1


def find_offset(partition: Partition, timestamp_ms: int) -> FoundOffset:
    """The first offset with at least this timestamp, or one of the named offsets.

    Looks only at what consumers may read. Raises `Refused` for a timestamp below -3.
    """
    if timestamp_ms == LATEST:
        return FoundOffset(partition.high_watermark)
    if timestamp_ms == EARLIEST:
        return FoundOffset(partition.log.start_offset)
    if timestamp_ms == MAX_TIMESTAMP:
        found = partition.log.max_timestamp(end_offset=partition.high_watermark)
    elif timestamp_ms >= 0:
        found = partition.log.offset_for_timestamp(
            timestamp_ms, end_offset=partition.high_watermark
        )
    else:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"A timestamp of {timestamp_ms}; use -1 latest, -2 earliest, -3 largest, or 0 and more",
        )
    return FoundOffset(-1) if found is None else FoundOffset(found.offset, found.timestamp_ms)
