"""What compaction leaves of one batch.

Owns the rules of survival: the last record of a key stays, a null value (a tombstone) stays until
its delete horizon, a batch keeps its offsets, its producer and its codec. Refuses to know where
batches lie. Source: Kafka's `LogCleaner` and `MemoryRecords.filterTo`; KIP-534.

    batch as it was                  what is left of it
    ------------------------------   ---------------------------------------------
    control, or not readable         itself (KAFKA-14055: markers have keys of their own)
    every record survives            itself
    some do                          a batch of these, over the same offsets
    none does                        nothing; an empty batch if its offsets or its
                                     producer's sequence must be remembered

A batch with tombstones that is cleaned for the first time gets its horizon: now, and
`delete_retention_ms`. A consumer that reads from the log's start within that time sees every
deletion.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_protocol.records import (
    BatchHeader,
    Columns,
    CorruptBatch,
    decode_columns,
    encode_records,
)
from millrace_protocol.records.header import CODEC_MASK, DELETE_HORIZON_BIT
from millrace_server.limits import DECODED_BYTES_MAX, DECODED_RECORDS_MAX
from millrace_server.log.compaction.key_map import KeyMap


@dataclass(frozen=True, slots=True)
class CleanedBatch:
    """What is left, None if nothing; `dropped` records went.

    `horizon_ms` is when its tombstones may go, None if it has none that may ever.
    """

    data: bytes | bytearray | None
    dropped: int = 0
    horizon_ms: int | None = None
    is_changed: bool = False


def read_keyed(data: bytes, header: BatchHeader) -> Columns | None:
    """Returns the records of a checked batch, None if it is not for compaction to read.

    That is a control batch, one that was sealed around something else than records, or one that
    takes more memory than a batch of a client does.
    """
    if header.is_control or header.record_count > DECODED_RECORDS_MAX:
        return None
    try:
        # To its end: that nothing follows the last record is checked last.
        chunks = list(
            decode_columns(
                data,
                chunk_records=max(1, header.record_count),
                check_crc=False,
                limit_bytes=DECODED_BYTES_MAX,
            )
        )
    except CorruptBatch:
        return None
    return chunks[0][0]


def clean_batch(
    data: bytes,
    header: BatchHeader,
    keys: KeyMap,
    *,
    now_ms: int,
    delete_retention_ms: int,
    keep_offsets: bool,
) -> CleanedBatch:
    """Returns what is left of the batch `data`, which `header` was read from.

    `keep_offsets`: even if no record survives, an empty batch does.
    """
    columns = read_keyed(data, header)
    if columns is None:
        return CleanedBatch(data)
    kept = keys.survivors(columns.keys, columns.offsets)
    horizon_ms = header.delete_horizon_ms
    values = columns.values
    if horizon_ms is not None and now_ms >= horizon_ms:
        kept = [index for index in kept if values[index] is not None]
    has_tombstones = any(values[index] is None for index in kept)
    if not has_tombstones:
        wanted_ms = None
    elif horizon_ms is None and header.last_offset < keys.end_offset:
        wanted_ms = now_ms + delete_retention_ms
    else:
        wanted_ms = horizon_ms
    dropped = header.record_count - len(kept)
    if not kept and not keep_offsets:
        return CleanedBatch(None, dropped, None, True)
    if not dropped and (wanted_ms == horizon_ms or not kept):
        return CleanedBatch(data, 0, wanted_ms)
    records = list(columns.records())
    try:
        left = encode_records(
            [records[index] for index in kept],
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            codec=header.codec,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
            delete_horizon_ms=wanted_ms,
            leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
    except ValueError:
        # Times that lie further apart than a batch can say, now that its base is another.
        return CleanedBatch(data)
    return CleanedBatch(left, dropped, wanted_ms, True)
