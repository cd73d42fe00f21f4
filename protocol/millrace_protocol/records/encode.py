"""Seal columns of records into one batch.

Owns the bytes of a record and the bound by which an accumulator knows when a batch is full.
It holds no records: an accumulator keeps raw columns and calls here once. Source: Kafka
protocol guide, "Record".

    record   length | attributes 00 | time delta | offset delta | key | value | headers
    key      length | bytes               (length -1: null, no bytes)
    value    length | bytes               (the same)
    headers  count  | (length | UTF-8 name | length | bytes)*

Attributes are one byte, every other number is a zigzag varint; `length` counts the bytes after
itself.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import add
from typing import Final

from millrace_protocol.records import native
from millrace_protocol.records.compression import Codec, compress
from millrace_protocol.records.header import (
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    RECORD_COUNT_MAX,
)
from millrace_protocol.records.validate import seal
from millrace_protocol.records.varint import (
    NULL,
    OFFSET_DELTA_WIDTHS,
    VARINTS,
    VarintTable,
    varint,
)

Headers = Sequence[tuple[str, bytes | None]]
"""The headers of one record, in order; a name may occur twice."""
Record = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""`(offset, timestamp_ms, key, value, headers)`, as `decode` returns records."""

SMALL_BATCH_BYTES: Final = 1024 * 1024
"""Below this size every length and offset delta of a batch takes three bytes at most."""
RECORD_OVERHEAD_BYTES: Final = 18
"""What a record adds to its key and value, at most, in a batch below `SMALL_BATCH_BYTES`.

Three bytes for each of length, offset delta, key length and value length, one for attributes,
four for a time delta (less than 37 hours either way), one for the header count.
"""
RECORD_OVERHEAD_BYTES_MAX: Final = 36
"""What a record adds to its key and value, at most, whatever the batch."""
KEPT_COUNT_MAX: Final = 1 << 14
"""The largest batch whose pieces are kept for the next one, some 50 bytes of memory a record."""
HEADER_OVERHEAD_BYTES_MAX: Final = 12
"""What a header adds to its name and value, at most: two lengths, and its part of the count."""

_INT64_MAX: Final = 2**63 - 1
_ZERO_BEFORE: Final = VarintTable(b"\x00")
_CONSTANT_TIME: Final = VarintTable(b"\x00\x00")
_CONSTANT_TIME_NULL_KEY: Final = VarintTable(b"\x00\x00", NULL)
_NULL_KEY: Final = VarintTable(b"", NULL)


def encode_batch(
    values: Sequence[bytes | None],
    *,
    timestamps_ms: int | Sequence[int],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    value_bytes: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Encode columns as one sealed batch, one offset per record.

    `timestamps_ms` is one time for all or one per record, since the epoch. Every column is as
    long as `values`. A caller that knows that no value is null and all have one length passes
    `value_bytes`. A payload that `codec` does not make smaller is stored as it is. Raises
    `ValueError` for no records, more than `RECORD_COUNT_MAX`, or columns of unequal length, and
    `TypeError` for a key or value that is not bytes.

    >>> from millrace_protocol.records.decode import decode_records
    >>> batch = encode_batch([b"a", None], keys=[None, b"k"], timestamps_ms=7, base_offset=40)
    >>> decode_records(bytes(batch))
    [(40, 7, None, b'a', ()), (41, 7, b'k', None, ())]
    """
    count = len(values)
    if not 0 < count <= RECORD_COUNT_MAX:
        raise ValueError(f"{count} records: a batch holds from 1 to {RECORD_COUNT_MAX}")
    for name, column in (("keys", keys), ("headers", headers), ("timestamps_ms", timestamps_ms)):
        if column is not None and not isinstance(column, int) and len(column) != count:
            raise ValueError(f"{len(column)} {name} for {count} values: columns must be equal")
    encoded, base_timestamp, max_timestamp = _encoded(
        values, keys, headers, timestamps_ms, value_bytes
    )
    return finish_batch(
        encoded,
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )


def encode_records(
    records: Sequence[Record],
    *,
    base_offset: int,
    last_offset: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    attributes: int = 0,
    delete_horizon_ms: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Encode records that keep their offsets, as compaction does with those that survive.

    The batch covers `[base_offset, last_offset]`, both inclusive; the records' offsets increase
    within it, and there may be none. `attributes` are the bits besides the codec and the delete
    horizon. `delete_horizon_ms` is when the null values among the records may go, since the
    epoch (KIP-534): it takes the place of the base timestamp, and the records keep their times.
    Slower per record than `encode_batch`. Raises `ValueError` for an offset out of place, and for
    times too far apart for one batch.
    """
    base_timestamp = records[0][1] if records else -1
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    batch = bytearray(HEADER_SIZE)
    previous = base_offset - 1
    for offset, timestamp, key, value, headers in records:
        if not previous < offset <= last_offset:
            raise ValueError(f"offset {offset} is not in [{previous + 1}, {last_offset}]")
        previous = offset
        time_delta = timestamp - base_timestamp
        if not -_INT64_MAX - 1 <= time_delta <= _INT64_MAX:
            raise ValueError(f"a time of {timestamp} ms is too far from {base_timestamp}")
        deltas = varint(time_delta) + varint(offset - base_offset)
        body = b"".join((b"\x00", deltas, _nullable(key), _nullable(value), _tail(headers)))
        batch += varint(len(body))
        batch += body
    return finish_batch(
        batch,
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max((record[1] for record in records), default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def record_size_max(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return an upper bound for the bytes of one record, in any batch.

    A batch takes at most `HEADER_SIZE` plus the bounds of its records, compressed or not. A hot
    loop adds up lengths and `RECORD_OVERHEAD_BYTES` itself, which is a closer bound.
    """
    size = RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for name, header in headers:
        size += HEADER_OVERHEAD_BYTES_MAX + 4 * len(name) + len(header or b"")
    return size


def _encoded(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
    timestamps_ms: int | Sequence[int],
    value_bytes: int | None,
) -> tuple[bytearray, int, int]:
    """Return room for a header with the encoded records, their first time and the greatest."""
    if native.compiled is not None:
        found = native.compiled.encode_columns(values, timestamps_ms, keys, headers, HEADER_SIZE)
        if found is not None:
            return found
    if isinstance(timestamps_ms, int):
        base = newest = timestamps_ms
    else:
        base, newest = timestamps_ms[0], max(timestamps_ms)
    deltas: list[int] | None = None
    if not isinstance(timestamps_ms, int) and (newest != base or min(timestamps_ms) != base):
        deltas = [timestamp - base for timestamp in timestamps_ms]
    return _encode_columns(values, keys, headers, deltas, value_bytes), base, newest


# Why columns. Appending eight pieces per record to a buffer costs 450 ns in CPython, nearly all of
# it calls. Here the batch is one list of pieces, `stride` per record, whose columns are filled by
# extended-slice assignment with rows of tables, and which is then joined once into the buffer that
# also takes the header:
#
#     frame | head time offset key-length key value-length value | head time ... | last byte
#             `------------------- record 0 --------------------'
#
# What does not vary costs no piece of its own. With one time for all, attributes and time delta
# move into the offset piece; with no keys, so does the null key; and with no headers, the zero
# that ends each record moves to the front of its successor's head. The first head then starts
# with a zero that ends nothing, so the frame is made one byte shorter and that byte completes the
# 61 which the header is written over; the last record's zero is the last piece.
def _encode_columns(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
    time_deltas: list[int] | None,
    value_bytes: int | None = None,
) -> bytearray:
    """Return room for a header, and behind it the encoded records."""
    count = len(values)
    is_plain = keys is None and headers is None and time_deltas is None and count <= KEPT_COUNT_MAX
    if is_plain and value_bytes is not None:
        return _encode_values(values, value_bytes)
    lengths = _lengths(values)
    if is_plain and lengths is not None and _is_constant(lengths):
        return _encode_values(values, lengths[0])
    value_lengths, filled_values, sizes = _field(values, lengths)
    columns: list[Sequence[bytes]] = []
    if time_deltas is None:
        fixed_size = 2
        offsets = _CONSTANT_TIME_NULL_KEY if keys is None else _CONSTANT_TIME
    else:
        fixed_size = 0
        times = _time_pieces(time_deltas)
        sizes = list(map(add, sizes, map(len, times)))
        columns.append(times)
        offsets = _NULL_KEY if keys is None else VARINTS
    columns.append(offsets.row(count))
    if keys is None:
        fixed_size += 1
    else:
        key_lengths, filled_keys, key_sizes = _field(keys, _lengths(keys))
        sizes = list(map(add, sizes, key_sizes))
        columns += (key_lengths, filled_keys)
    columns += (value_lengths, filled_values)
    if headers is None:
        fixed_size += 1
        heads = _head_pieces(_ZERO_BEFORE, sizes, fixed_size)
        frame, last_byte = bytes(HEADER_SIZE - 1), b"\x00"
    else:
        tails = [_tail(headers[0])] * count if _is_constant(headers) else list(map(_tail, headers))
        sizes = list(map(add, sizes, map(len, tails)))
        columns.append(tails)
        heads = _head_pieces(VARINTS, sizes, fixed_size)
        frame, last_byte = bytes(HEADER_SIZE), b""
    columns.insert(0, heads)
    stride = len(columns)
    pieces = [b""] * (count * stride + 2)
    pieces[0], pieces[-1] = frame, last_byte
    for index, column in enumerate(columns, 1):
        pieces[index:-1:stride] = column
    return bytearray().join(pieces)


def _encode_values(values: Sequence[bytes | None], length: int) -> bytearray:
    """`_encode_columns` for values of one length, with one time and nothing beside them.

    All that lies between two values depends on the record's number alone, so it is one piece,
    kept from batch to batch: 27 ns a record instead of 50.
    """
    count = len(values)
    pieces: list[bytes] = [b""] * (2 * count + 2)
    pieces[0], pieces[-1] = bytes(HEADER_SIZE - 1), b"\x00"
    pieces[1:-1:2] = _kept_pieces(length, 1 << (count - 1).bit_length())[:count]
    pieces[2:-1:2] = values  # type: ignore[assignment]
    return bytearray().join(pieces)


@lru_cache(maxsize=8)
def _kept_pieces(length: int, count: int) -> list[bytes]:
    return pieces_between(length, count)


def pieces_between(length: int, count: int) -> list[bytes]:
    """Return what stands before each of `count` values of one length, with one time and no keys.

    Each piece begins with the zero that ends the record before it, the first one too.
    """
    value_length = varint(length)
    pieces: list[bytes] = []
    for width, first, end in OFFSET_DELTA_WIDTHS:
        size = width + 4 + len(value_length) + length
        before = b"\x00" + varint(size) + b"\x00\x00"
        behind = NULL + value_length
        pieces += [before + varint(delta) + behind for delta in range(first, min(end, count))]
        if end >= count:
            break
    return pieces


def _lengths(column: Sequence[bytes | None]) -> list[int] | None:
    """Return the length of each item, None if one is null."""
    try:
        return list(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        return None


def _field(
    column: Sequence[bytes | None], lengths: list[int] | None
) -> tuple[list[bytes], Sequence[bytes], list[int]]:
    """Return a column's length pieces, its bytes, and the sizes of both together."""
    filled: Sequence[bytes] = column  # type: ignore[assignment]
    if lengths is None:
        filled = [b"" if item is None else item for item in column]
        lengths = list(map(len, filled))
        pieces = [
            NULL if item is None else piece
            for item, piece in zip(column, VARINTS.lookup(lengths), strict=True)
        ]
    elif _is_constant(lengths):
        piece = VARINTS.lookup(lengths[:1])[0]
        count = len(lengths)
        return [piece] * count, filled, [lengths[0] + len(piece)] * count
    else:
        pieces = VARINTS.lookup(lengths)
    return pieces, filled, list(map(add, lengths, map(len, pieces)))


def _is_constant(items: Sequence[object]) -> bool:
    """Whether all are equal: sensors and fixed layouts write records of one size.

    Costs a comparison where they are not, and 4 ns a record, for 50 saved, where they are.
    """
    first = items[0]
    return first == items[-1] and items.count(first) == len(items)


def _time_pieces(deltas: list[int]) -> list[bytes]:
    """Return attributes and time delta of each record."""
    if min(deltas) < 0:
        return [b"\x00" + varint(delta) for delta in deltas]
    return _ZERO_BEFORE.lookup(deltas)


def _head_pieces(table: VarintTable, sizes: list[int], fixed_size: int) -> list[bytes]:
    """Return the length of each record: its varying and fixed sizes, and its offset delta's."""
    heads: list[bytes] = []
    count = len(sizes)
    constant = _is_constant(sizes)
    for width, first, end in OFFSET_DELTA_WIDTHS:
        rest = fixed_size + width
        if constant:
            heads += table.lookup([sizes[0] + rest]) * (min(end, count) - first)
        else:
            heads += table.lookup([size + rest for size in sizes[first:end]])
        if end >= count:
            break
    return heads


def _nullable(item: bytes | None) -> bytes:
    return NULL if item is None else varint(len(item)) + item


def _tail(headers: Headers) -> bytes:
    """Encode the headers of one record."""
    if not headers:
        return b"\x00"
    pieces = [varint(len(headers))]
    for name, value in headers:
        pieces += (_name(name), _nullable(value))
    return b"".join(pieces)


@lru_cache(maxsize=256)
def _name(name: str) -> bytes:
    """Encode a header's name; programs use few and repeat them."""
    encoded = name.encode()
    return varint(len(encoded)) + encoded


def finish_batch(
    batch: bytearray,
    *,
    codec: Codec,
    level: int | None,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """Make a batch, in place, of encoded records behind room for a header; return it.

    Compresses, if that makes it smaller, then writes header and CRC.
    """
    if codec is not Codec.NONE:
        compressed = compress(bytes(memoryview(batch)[HEADER_SIZE:]), codec, level=level)
        if len(compressed) < len(batch) - HEADER_SIZE:
            batch[HEADER_SIZE:] = compressed
            attributes |= codec
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_END,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    seal(batch)
    return batch
