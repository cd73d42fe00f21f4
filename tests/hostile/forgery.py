"""Forged batches: right checksums over wrong fields.

Owns the making of them. `forged` changes header fields and seals again, so that only the check of
that field can refuse; `sealed_payload` puts any bytes behind a header that fits them.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

import cramjam

from millrace_protocol.records import HEADER_SIZE, Codec, encode_batch, read_header, seal
from millrace_protocol.records.varint import varint

BOMB_BYTES = 120 << 20
"""Below what a reader of records may decompress, far above what a broker should hold."""


def forged(*values: bytes, **fields: int) -> bytes:
    """A batch of `values` with these header fields, and a right CRC over them."""
    made = bytearray(encode_batch(list(values) or [b"one", b"two"], timestamps_ms=1_000))
    header = read_header(made)
    length = header.batch_length
    for name, number in fields.items():
        setattr(header, name, number)
    made[:HEADER_SIZE] = header.pack()
    if header.batch_length == length:
        seal(made)
    return bytes(made)


def sealed_payload(
    payload: bytes, *, count: int, codec: Codec = Codec.NONE, timestamp_ms: int = 1_000
) -> bytes:
    """A batch that says it holds `count` records, and holds `payload`."""
    made = bytearray(encode_batch([b""], timestamps_ms=timestamp_ms)[:HEADER_SIZE] + payload)
    header = read_header(made)
    header.batch_length = len(made) - 12
    header.attributes = codec
    header.record_count, header.last_offset_delta = count, count - 1
    made[:HEADER_SIZE] = header.pack()
    seal(made)
    return bytes(made)


def record(
    value: bytes = b"x",
    *,
    length: bytes | None = None,
    timestamp_delta: bytes = b"\0",
    offset_delta: bytes = b"\0",
    key: bytes = b"\x01",
    headers: bytes = b"\0",
) -> bytes:
    """One record, any of its parts replaced by other bytes."""
    fields = b"\0" + timestamp_delta + offset_delta + key + varint(len(value)) + value + headers
    return (varint(len(fields)) if length is None else length) + fields


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=19))


def _lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress(data))


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


COMPRESSORS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: lambda data: gzip.compress(data, 9, mtime=0),
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}


def bombs(size: int = BOMB_BYTES) -> dict[str, bytes]:
    """Batches of less than 1 MiB that expand to `size` bytes, and what only pretends to."""
    value = bytes(size)
    one = record(value)
    small = record(b"")
    many = small * (size // len(small))
    made = {
        "gzip": sealed_payload(COMPRESSORS[Codec.GZIP](one), count=1, codec=Codec.GZIP),
        "lz4": sealed_payload(COMPRESSORS[Codec.LZ4](one), count=1, codec=Codec.LZ4),
        "zstd": sealed_payload(COMPRESSORS[Codec.ZSTD](one), count=1, codec=Codec.ZSTD),
        "zstd, records without end": sealed_payload(
            COMPRESSORS[Codec.ZSTD](many), count=size // len(small), codec=Codec.ZSTD
        ),
        "snappy that says 4 GiB": sealed_payload(
            b"\xff\xff\xff\xff\x0f" + b"\0" * 100, count=1, codec=Codec.SNAPPY
        ),
        "zstd that says 4 GiB": sealed_payload(
            bytes.fromhex("28b52ffd a0 ffffffff 010000".replace(" ", "")),
            count=1,
            codec=Codec.ZSTD,
        ),
        "gzip that says 4 GiB": sealed_payload(
            COMPRESSORS[Codec.GZIP](b"x")[:-4] + struct.pack("<I", 2**32 - 1),
            count=1,
            codec=Codec.GZIP,
        ),
    }
    return {name: batch for name, batch in made.items() if len(batch) <= 1 << 20}


LYING_PAYLOADS: dict[str, bytes] = {
    "an overlong varint": sealed_payload(record(length=b"\x80" * 10 + b"\x01"), count=1),
    "a varint of 70 bits": sealed_payload(record(timestamp_delta=b"\xff" * 9 + b"\x7f"), count=1),
    "a varint without an end": sealed_payload(b"\xff" * 60, count=1),
    "a negative record length": sealed_payload(record(length=b"\x01"), count=1),
    "a record longer than its batch": sealed_payload(record(length=varint(1 << 30)), count=1),
    "a value longer than its record": sealed_payload(
        record(headers=b"")[:-2] + varint(1 << 40) + b"x\0", count=1
    ),
    "a negative value length": sealed_payload(record(key=varint(-7)), count=1),
    "a billion headers": sealed_payload(record(headers=varint(10**9)), count=1),
    "a header without a name": sealed_payload(record(headers=b"\x02\x01\x01"), count=1),
    "a header name that is not UTF-8": sealed_payload(
        record(headers=b"\x02\x04\xff\xfe\x01"), count=1
    ),
    "an offset delta of 5": sealed_payload(record(offset_delta=varint(5)), count=1),
    "a negative offset delta": sealed_payload(record(offset_delta=varint(-1)), count=1),
    "an offset delta of int64": sealed_payload(record(offset_delta=varint(2**63 - 1)), count=1),
    "deltas twice the same": sealed_payload(record() * 2, count=2),
    "fewer records than it says": sealed_payload(record() + bytes(7), count=2),
    "more records than it says": sealed_payload(record() + record(offset_delta=b"\x02"), count=1),
    "no records at all": sealed_payload(b"\0" * 20, count=2),
    "a time beyond int64": sealed_payload(
        record(timestamp_delta=varint(2**63 - 1)), count=1, timestamp_ms=2**62
    ),
    "gzip that is not gzip": sealed_payload(b"not gzip", count=1, codec=Codec.GZIP),
    "gzip cut short": sealed_payload(
        COMPRESSORS[Codec.GZIP](record(b"y" * 100))[:-12], count=1, codec=Codec.GZIP
    ),
    "snappy that is not snappy": sealed_payload(b"\xff" * 30, count=1, codec=Codec.SNAPPY),
    "lz4 that is not lz4": sealed_payload(
        b"\x04\x22\x4d\x18" + b"\xff" * 30, count=1, codec=Codec.LZ4
    ),
    "zstd that is not zstd": sealed_payload(
        b"\x28\xb5\x2f\xfd" + b"\xff" * 30, count=1, codec=Codec.ZSTD
    ),
}
"""What a broker accepts, because it does not look into a batch, and a reader must refuse."""
