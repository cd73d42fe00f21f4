"""What a fetch covers: where to go on, and how many records it has, from its headers."""

from __future__ import annotations

from millrace_protocol.records.decode import decode_records
from millrace_protocol.records.header import ReadBuffer, batch_positions, batch_ranges
from millrace_protocol.records.validate import check_batch


def offset_after(buf: ReadBuffer, *, from_offset: int) -> int:
    """Return the offset to fetch next, once all whole batches of a fetch have been read.

    At least `from_offset`; reads headers only.
    """
    reached = from_offset
    for _, _, _, last_offset in batch_ranges(buf):
        reached = max(reached, last_offset + 1)
    return reached


def count_records(buf: ReadBuffer, *, from_offset: int) -> int:
    """Return how many records from `from_offset` on the whole batches of a fetch have.

    Reads headers, and records only where `from_offset` is within a batch with gaps. Control
    batches do not count. Raises `CorruptBatch`.
    """
    count = 0
    for position in batch_positions(buf):
        header = check_batch(buf, position, check_crc=False)
        before = from_offset - header.base_offset
        if header.is_control or header.next_offset <= from_offset:
            continue
        if before <= 0:
            count += header.record_count
        elif header.record_count == header.last_offset_delta + 1:
            count += header.record_count - before
        else:
            records = decode_records(buf, position, check_crc=False)
            count += sum(record[0] >= from_offset for record in records)
    return count
