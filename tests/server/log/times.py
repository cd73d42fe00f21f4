"""Searching a log by time, as a broker does that looks into batches."""

from __future__ import annotations

from millrace_protocol.records import decode_records
from millrace_server.log import FoundTime, PartitionLog


def first_at_or_after(log: PartitionLog, timestamp_ms: int, *, end_offset: int) -> FoundTime | None:
    """The first record before `end_offset` that is not older than `timestamp_ms`."""
    from_offset = log.start_offset
    while True:
        candidate = log.reader.candidate_for_timestamp(
            timestamp_ms, from_offset=from_offset, end_offset=end_offset
        )
        if candidate is None or candidate.is_certain:
            return candidate and candidate.by_header
        for offset, record_timestamp_ms, *_ in decode_records(candidate.batch):
            if offset >= from_offset and record_timestamp_ms >= timestamp_ms:
                return FoundTime(record_timestamp_ms, offset)
        from_offset = candidate.next_offset


def newest(log: PartitionLog, *, end_offset: int) -> FoundTime | None:
    """The first record with the largest timestamp before `end_offset`."""
    largest_ms = log.reader.largest_timestamp(end_offset=end_offset)
    return None if largest_ms < 0 else first_at_or_after(log, largest_ms, end_offset=end_offset)
