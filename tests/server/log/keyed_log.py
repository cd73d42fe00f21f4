"""Keyed records in a log: how to append, read and clean them, and what must be left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millrace_protocol.records import Codec, Record, decode_fetch, encode_batch, read_header
from millrace_server.log import Appended, Cleaning, PartitionLog
from millrace_server.log.compaction.cleaning import CleaningReport

Pair = tuple[bytes | None, bytes | None]
"""Key and value; a null value deletes the key."""


def append_pairs(
    log: PartitionLog,
    pairs: Sequence[Pair],
    *,
    timestamps_ms: int | Sequence[int] = 1000,
    now_ms: int = 1000,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    base_sequence: int = -1,
) -> Appended:
    """Appends one batch as a producer would have sent it."""
    batch = encode_batch(
        [value for _, value in pairs],
        keys=[key for key, _ in pairs],
        timestamps_ms=timestamps_ms,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
    )
    return log.append(batch, read_header(batch), now_ms=now_ms)


def read_batches(log: PartitionLog, offset: int | None = None, *, max_bytes: int = 2**20) -> bytes:
    """The bytes of all batches from the one that holds `offset`, or the first behind it."""
    data = b""
    reached = log.start_offset if offset is None else offset
    while reached < log.end_offset:
        read = log.reader.read(reached, max_bytes=max_bytes, end_offset=log.end_offset)
        assert read.slice is not None
        data += read.slice.file.pread(read.slice.size, read.slice.position)
        read.slice.release()
        assert read.next_offset > reached
        reached = read.next_offset
    return data


def read_records(
    log: PartitionLog, offset: int | None = None, *, max_bytes: int = 2**20
) -> list[Record]:
    """All records from `offset` on."""
    first = log.start_offset if offset is None else offset
    data = read_batches(log, first, max_bytes=max_bytes)
    return [record for records, _ in decode_fetch(data, from_offset=first) for record in records]


def final_map(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    """What a reader of all these records knows at the end."""
    known: dict[bytes | None, bytes] = {}
    for _, _, key, value, _ in records:
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value
    return known


def clean(
    log: PartitionLog,
    now_ms: int,
    *,
    keys_max: int = 1000,
    high_watermark: int | None = None,
    flush: bool = True,
) -> CleaningReport | None:
    """One pass of compaction, if one is due."""
    cleaning = log.cleaner.begin(
        now_ms,
        high_watermark=log.end_offset if high_watermark is None else high_watermark,
        keys_max=keys_max,
    )
    if cleaning is None:
        return None
    carry_out(log, cleaning, flush=flush)
    return cleaning.report


def carry_out(log: PartitionLog, cleaning: Cleaning, *, flush: bool = True) -> None:
    """Takes a pass to its end."""
    try:
        while (done := cleaning.step()) is not None:
            if not isinstance(done, int):
                assert log.cleaner.swap(done)
        log.cleaner.finish(cleaning)
    finally:
        cleaning.close()
    if flush:
        log.flush()
