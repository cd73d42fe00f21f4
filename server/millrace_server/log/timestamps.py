"""From a time to the batch that can hold the answer.

Owns the search through segments and headers. Refuses to know the caller, and reads no record: the
time indexes narrow the search to one index interval, and what a header leaves open is for the
caller, which looks into that one batch. If the records are older than their header says, the search
goes on behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace_protocol.records import read_header
from millrace_server.log.segment import Segment


class FoundTime(NamedTuple):
    """A record's timestamp, in milliseconds, and its offset."""

    timestamp_ms: int
    offset: int


class Candidate(NamedTuple):
    """A batch whose largest timestamp is late enough."""

    batch: bytes
    by_header: FoundTime
    """What is known without its records: its largest timestamp, and its first offset."""
    is_certain: bool
    """Every record has that timestamp, so `by_header` is the answer."""
    next_offset: int
    """Where to search on when no record of it is late enough."""


def first_candidate(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, end_offset: int
) -> Candidate | None:
    """Finds the first batch with records in `[start_offset, end_offset)` that may be the answer.

    The question: which is the first record there that is not older than `timestamp_ms`?
    """
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.max_timestamp < timestamp_ms or segment.end_offset <= start_offset:
            continue
        relative_offset = max(
            segment.times.floor_timestamp(timestamp_ms), start_offset - segment.base_offset
        )
        relative_offset, position = segment.offsets.floor_offset(relative_offset)
        offset = segment.base_offset + relative_offset
        for span in segment.spans(position, segment.size_bytes, offset=offset):
            if span.base_offset >= end_offset:
                break
            if span.max_timestamp < timestamp_ms or span.last_offset < start_offset:
                continue
            batch = segment.pread(span.size_bytes, span.position)
            header = read_header(batch)
            return Candidate(
                batch,
                FoundTime(span.max_timestamp, max(span.base_offset, start_offset)),
                header.is_log_append_time and header.record_count == header.last_offset_delta + 1,
                header.next_offset,
            )
    return None


def largest_timestamp(segments: Sequence[Segment], *, start_offset: int, end_offset: int) -> int:
    """The largest timestamp of the batches in `[start_offset, end_offset)`, -1 for none."""
    return max(
        (
            _largest_in(segment, start_offset, end_offset)
            for segment in segments
            if segment.base_offset < end_offset and segment.end_offset > start_offset
        ),
        default=-1,
    )


def _largest_in(segment: Segment, start_offset: int, end_offset: int) -> int:
    largest = segment.max_timestamp_before(end_offset)
    if start_offset <= segment.base_offset or segment.max_timestamp_before(start_offset) < largest:
        return largest
    # It may lie before the start, and the index counts from the segment's first batch.
    relative_offset, position = segment.offsets.floor_offset(start_offset - segment.base_offset)
    spans = segment.spans(
        position, segment.size_bytes, offset=segment.base_offset + relative_offset
    )
    return max(
        (
            span.max_timestamp
            for span in spans
            if span.last_offset >= start_offset and span.base_offset < end_offset
        ),
        default=-1,
    )
