"""The batches of a fetch response: those whose offsets can be true, and how they are kept."""

from __future__ import annotations

from millrace_protocol.records import batch_ranges


def whole_batches(
    data: bytes | memoryview, next_offset: int, high_watermark: int
) -> tuple[int, int, bool]:
    """The whole batches that begin at `next_offset` or behind it.

    Returns where they end in `data`, the offset behind them, and whether others follow that cannot
    be true. No CRC covers a base offset, and a bit that changed on a disk must not lead a reader
    past records. No batch reaches the high watermark, and each begins behind the one before it; of
    two that overlap behind a gap, the one that made the gap is the wrong one.
    """
    end = 0
    before_gap: tuple[int, int] | None = None
    for _, batch_end, base_offset, last_offset in batch_ranges(data):
        continues = base_offset >= next_offset or not end
        if not (continues and next_offset <= last_offset < high_watermark):
            if before_gap is not None:
                next_offset, end = before_gap
            return end, next_offset, True
        before_gap = (next_offset, end) if base_offset > next_offset else None
        next_offset, end = last_offset + 1, batch_end
    return end, next_offset, False


def kept(records: bytes | memoryview) -> bytes | memoryview:
    """Records to be buffered: as they lie in their frame where they are most of it, and a copy.

    A view keeps all of what it is a part of in memory, and only the part is counted.
    """
    if isinstance(records, memoryview) and 2 * len(records) < memoryview(records.obj).nbytes:
        return bytes(records)
    return records
