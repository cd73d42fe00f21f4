"""Record batches (wire_spec.md W-5): written and read a byte at a time, uncompressed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
NO_PRODUCER = (-1, -1, -1)
FIELDS = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
Value = bytes | None


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C, Castagnoli (W-5.1)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    """A zigzag varint (W-5.3.1)."""
    rest = number << 1 ^ number >> 63
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and where it ends."""
    rest = shift = 0
    while True:
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return rest >> 1 ^ -(rest & 1), position


class Record(NamedTuple):
    """One record; `offset` and `timestamp_ms` are absolute."""

    offset: int
    timestamp_ms: int
    key: Value
    value: Value
    headers: tuple[tuple[str, Value], ...] = ()


def record_bytes(
    delta: int, timestamp_delta: int, key: Value, value: Value, headers: Sequence[tuple[str, Value]]
) -> bytes:
    """One record (W-5.3)."""
    body = b"\0" + varint(timestamp_delta) + varint(delta) + _sized(key) + _sized(value)
    body += varint(len(headers))
    for name, content in headers:
        body += _sized(name.encode()) + _sized(content)
    return varint(len(body)) + body


def _sized(data: Value) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch(
    *values: Value,
    key: Value = None,
    headers: Sequence[tuple[str, Value]] = (),
    timestamps: Sequence[int] | None = None,
    producer: tuple[int, int, int] = NO_PRODUCER,
    payload: bytes | None = None,
    codec: int = 0,
) -> bytes:
    """A batch as a client produces it; `payload` stands in for the records' bytes."""
    times = list(timestamps) if timestamps is not None else [1_000] * len(values)
    if payload is None:
        payload = b"".join(
            record_bytes(n, time - times[0], key, value, headers)
            for n, (time, value) in enumerate(zip(times, values, strict=True))
        )
    count = len(values)
    head = HEADER.pack(
        *(0, 49 + len(payload), -1, 2, 0, codec, count - 1, times[0], max(times)),
        *producer,
        count,
    )
    return sealed(head + payload)


def sealed(data: bytes) -> bytes:
    """The batch with its right CRC."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def altered(data: bytes, seal: bool = True, /, **fields: int) -> bytes:
    """The batch with other header fields, sealed again unless told otherwise."""
    changed = bytearray(data)
    for name, value in fields.items():
        position, form = FIELDS[name]
        struct.pack_into(form, changed, position, value)
    return sealed(bytes(changed)) if seal else bytes(changed)


def field(data: bytes, name: str) -> int:
    """A header field."""
    position, form = FIELDS[name]
    return int(struct.unpack_from(form, data, position)[0])


def split(records: bytes) -> list[bytes]:
    """The batches of a `records` field (W-3.4). Raises `ValueError` for a part of one."""
    batches = []
    while records:
        size = 12 + field(records, "batch_length") if len(records) >= HEADER_BYTES else 0
        if not HEADER_BYTES <= size <= len(records):
            raise ValueError(f"{len(records)} bytes at the end are no whole batch")
        batches.append(records[:size])
        records = records[size:]
    return batches


def records_of(data: bytes) -> list[Record]:
    """The records of an uncompressed batch. Raises `ValueError` for a wrong CRC."""
    if field(data, "crc") != crc32c(data[21:]):
        raise ValueError("the CRC is wrong")
    position = HEADER_BYTES
    found = []
    for _ in range(field(data, "record_count")):
        _, position = read_varint(data, position)
        timestamp_delta, position = read_varint(data, position + 1)
        delta, position = read_varint(data, position)
        key, position = _read_sized(data, position)
        value, position = _read_sized(data, position)
        count, position = read_varint(data, position)
        headers = []
        for _ in range(count):
            name, position = _read_sized(data, position)
            content, position = _read_sized(data, position)
            headers.append(((name or b"").decode(), content))
        if field(data, "attributes") & 0x08:
            timestamp_ms = field(data, "max_timestamp")
        else:
            timestamp_ms = field(data, "base_timestamp") + timestamp_delta
        offset = field(data, "base_offset") + delta
        found.append(Record(offset, timestamp_ms, key, value, tuple(headers)))
    return found


def _read_sized(data: bytes, position: int) -> tuple[Value, int]:
    size, position = read_varint(data, position)
    return (None, position) if size < 0 else (data[position : position + size], position + size)
