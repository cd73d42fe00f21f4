"""From a time to an offset.

Owns the search through segments, headers and one batch. Refuses to know when it is asked, and by
whom. The time indexes narrow the search to one index interval; only the batch that can hold the
answer is decoded, and only if its records stay below `DECODED_BYTES_MAX` and `DECODED_RECORDS_MAX`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace_protocol.records import CorruptBatch, decode_fetch, read_header
from millrace_server.limits import DECODED_BYTES_MAX, DECODED_RECORDS_MAX
from millrace_server.log.segment import Segment, Span


class FoundTime(NamedTuple):
    """A record's timestamp, in milliseconds, and its offset."""

    timestamp_ms: int
    offset: int


def first_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, end_offset: int
) -> FoundTime | None:
    """Finds the first record in `[start_offset, end_offset)` not older than `timestamp_ms`."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.max_timestamp < timestamp_ms:
            continue
        relative_offset = segment.times.floor_timestamp(timestamp_ms)
        relative_offset, position = segment.offsets.floor_offset(relative_offset)
        offset = segment.base_offset + relative_offset
        for span in segment.spans(position, segment.size_bytes, offset=offset):
            if span.base_offset >= end_offset:
                break
            if span.max_timestamp < timestamp_ms or span.last_offset < start_offset:
                continue
            found = _first_in_batch(segment, span, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def newest(segments: Sequence[Segment], *, start_offset: int, end_offset: int) -> FoundTime | None:
    """Finds the first record with the largest timestamp in `[start_offset, end_offset)`."""
    largest = max(
        (
            segment.max_timestamp_before(end_offset)
            for segment in segments
            if segment.base_offset < end_offset
        ),
        default=-1,
    )
    if largest < 0:
        return None
    return first_at_or_after(segments, largest, start_offset=start_offset, end_offset=end_offset)


def _first_in_batch(
    segment: Segment, span: Span, timestamp_ms: int, start_offset: int
) -> FoundTime | None:
    data = segment.pread(span.size_bytes, span.position)
    header = read_header(data)
    by_header = FoundTime(span.max_timestamp, max(span.base_offset, start_offset))
    is_dense = header.record_count == header.last_offset_delta + 1
    if (header.is_log_append_time and is_dense) or header.record_count > DECODED_RECORDS_MAX:
        return by_header
    try:
        for records, _ in decode_fetch(
            data, from_offset=start_offset, limit_bytes=DECODED_BYTES_MAX
        ):
            for offset, record_timestamp_ms, *_ in records:
                if record_timestamp_ms >= timestamp_ms:
                    return FoundTime(record_timestamp_ms, offset)
    except CorruptBatch:
        # The broker never looks into a batch, so a client may have sent one that nobody can read.
        # Its header is all that is known of it, and its reader is told there.
        return by_header
    return None
