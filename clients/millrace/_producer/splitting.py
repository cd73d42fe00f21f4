"""Splits a batch that is too large for its topic into two.

How large a topic's batches may be is the topic's own setting, `max.message.bytes`, and a producer
learns of it by being refused. Source: KIP-126.
"""

from __future__ import annotations

from millrace._producer.batch import NO_SEQUENCE, Batch
from millrace._producer.columns import Columns
from millrace._producer.receipts import Receipts
from millrace_protocol.records import Codec, Headers, decode_columns


def split(batch: Batch, codec: Codec, producer_id: int, epoch: int) -> tuple[Batch, Batch]:
    """Moves the records of a batch, which is settled by it, into two that take its place.

    The batch is encoded, in no log, and has two records at least. Its parts are encoded too, and
    share its sequences: those of batches behind it stay as they are.
    """
    assert batch.payload is not None
    columns = _columns(batch.payload)
    count = batch.count
    middle = count // 2
    first_bytes = batch.size_bytes * middle // count
    first = _part(batch, 0, columns, 0, middle, first_bytes)
    second = _part(batch, 1, columns, middle, count, batch.size_bytes - first_bytes)
    first.encode(codec, producer_id, epoch, batch.sequence)
    after = NO_SEQUENCE if batch.sequence == NO_SEQUENCE else first.next_sequence
    second.encode(codec, producer_id, epoch, after)
    batch.size_bytes = 0
    batch.move(Receipts([(first, 0, first.count), (second, 0, second.count)]))
    return first, second


def _columns(payload: bytearray) -> Columns:
    """The records of an encoded batch."""
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    headers: list[Headers] = []
    timestamps_ms: list[int] = []
    for chunk, _ in decode_columns(payload, check_crc=False):
        values += chunk.values
        keys += chunk.keys
        headers += chunk.headers
        timestamps_ms += chunk.timestamps_ms
    return Columns(values, keys, headers, timestamps_ms)


def _part(
    batch: Batch, index: int, columns: Columns, start: int, end: int, size_bytes: int
) -> Batch:
    part = Batch(batch.owner, batch.topic, batch.partition, (*batch.number, index), -1)
    part.extend(columns, start, end, size_bytes)
    part.opened_ms = batch.opened_ms
    part.flush_now = batch.flush_now
    part.observed = batch.observed
    return part
