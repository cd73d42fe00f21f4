"""The 61 bytes in front of every record batch: Kafka's magic-2 header.

Owns the layout, twice: as one `struct.Struct`, which runs, and as a `construct` declaration,
which the dissector and the specification read; a property test pins the two equal. Refuses to
know whether a header is true: `validate` does. Source: Kafka protocol guide, "Record Batch",
and KIP-98.

    byte  0        8         12           16    17     21         23
          +--------+---------+------------+-----+------+----------+-------------------+
          | base   | batch   | leader     | ma- | crc  | attri-   | last offset       |
          | offset | length  | epoch      | gic | 32c  | butes    | delta             |
          | i64    | i32     | i32        | i8  | u32  | i16      | i32               |
          +--------+---------+------------+-----+------+----------+-------------------+
         27         35         43         51         53         57         61
          +----------+----------+----------+----------+----------+----------+---------
          | base     | max      | producer | producer | base     | record   | records,
          | timestamp| timestamp| id       | epoch    | sequence | count    | maybe
          | i64 ms   | i64 ms   | i64      | i16      | i32      | i32      | compressed
          +----------+----------+----------+----------+----------+----------+---------

Big-endian. `batch length` counts the bytes after itself, so a batch is `12 + batch_length` bytes.
The CRC covers byte 21 to the end, which leaves base offset and leader epoch for the broker to
write in place. Attributes: bits 0-2 codec, 3 log append time, 4 transactional, 5 control,
6 delete horizon.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import construct

from millrace_protocol.records.compression import Codec

ReadBuffer = bytes | bytearray | memoryview
WriteBuffer = bytearray | memoryview

MAGIC: Final = 2
HEADER_SIZE: Final = 61
LENGTH_END: Final = 12
_LEADER_EPOCH: Final = struct.Struct(">i")
"""Bytes up to and including `batch length`; what must be read to know where a batch ends."""
BATCH_LENGTH_MIN: Final = HEADER_SIZE - LENGTH_END
"""A batch with no records, which only compaction leaves behind."""

LEADER_EPOCH_POSITION: Final = 12
CRC_POSITION: Final = 17
CRC_START: Final = 21
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

RECORD_SIZE_MIN: Final = 7
"""Seven one-byte fields: length, attributes, two deltas, key length, value length, headers."""
PAYLOAD_BYTES_MAX: Final = 128 * 1024 * 1024
"""How large a batch's records may be once decompressed.

Kafka has no such limit. A batch on the wire is about 1 MiB by default, and real data compresses
some tens of times, so 128 MiB refuses bombs and nothing else.
"""
RECORD_COUNT_MAX: Final = PAYLOAD_BYTES_MAX // RECORD_SIZE_MIN
"""No decodable batch holds more, so no header may claim more."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_EXTENT: Final = struct.Struct(">qi")
_RANGE: Final = struct.Struct(">qi11xi")
_SPAN: Final = struct.Struct(">qii7xi8xq")
assert HEADER.size == HEADER_SIZE

BATCH_HEADER: Final = construct.Struct(
    "base_offset" / construct.Int64sb,
    "batch_length" / construct.Int32sb,
    "partition_leader_epoch" / construct.Int32sb,
    "magic" / construct.Int8sb,
    "crc" / construct.Int32ub,
    "attributes" / construct.Int16sb,
    "last_offset_delta" / construct.Int32sb,
    "base_timestamp" / construct.Int64sb,
    "max_timestamp" / construct.Int64sb,
    "producer_id" / construct.Int64sb,
    "producer_epoch" / construct.Int16sb,
    "base_sequence" / construct.Int32sb,
    "record_count" / construct.Int32sb,
)


@dataclass(slots=True)
class BatchHeader:
    """A batch header as read; `check_batch` is what makes one trustworthy.

    In a checked header `0 <= record_count <= last_offset_delta + 1` and
    `base_offset <= last_offset < next_offset`. The two are equal unless the log was compacted.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record: where the next batch begins at the earliest."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """How the records are compressed; `ValueError` for a codec that does not exist."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """The broker's clock set the timestamp: every record has `max_timestamp`."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """The batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Holds markers for brokers and clients, which no application sees."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the null values of the batch, None if it has not met any."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer(self) -> bool:
        """Sent by an idempotent producer: id, epoch and sequence mean something."""
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, inclusive; wraps from 2**31 - 1 to 0."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    def pack(self) -> bytes:
        """Return the 61 bytes."""
        return HEADER.pack(
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )


def read_header(buf: ReadBuffer, position: int = 0) -> BatchHeader:
    """Read the header at `position` and check nothing.

    Raises `struct.error` if fewer than `HEADER_SIZE` bytes are left.
    """
    return BatchHeader(*HEADER.unpack_from(buf, position))


def batch_extent(buf: ReadBuffer, position: int = 0) -> tuple[int, int]:
    """Return `(base_offset, size_bytes)` from the first 12 bytes of a batch.

    The cheapest step of a scan. `size_bytes` is as the batch claims, and may be absurd.
    """
    base_offset, batch_length = _EXTENT.unpack_from(buf, position)
    return base_offset, LENGTH_END + batch_length


def batch_span(buf: ReadBuffer, position: int = 0) -> tuple[int, int, int, int, int]:
    """Return `(base_offset, size_bytes, leader_epoch, last_offset, max_timestamp)`.

    What a log needs to index a batch, from its first 43 bytes, in a third of the time of
    `read_header`. `last_offset` is inclusive. Checks nothing.
    """
    base_offset, batch_length, leader_epoch, last_offset_delta, max_timestamp = _SPAN.unpack_from(
        buf, position
    )
    return (
        base_offset,
        LENGTH_END + batch_length,
        leader_epoch,
        base_offset + last_offset_delta,
        max_timestamp,
    )


def batch_ranges(buf: ReadBuffer) -> Iterator[tuple[int, int, int, int]]:
    """Yield `(position, end, base_offset, last_offset)` of every batch that lies whole in `buf`.

    `last_offset` is inclusive. Follows the lengths and nothing else; stops before a batch that is
    cut short, and before a length that cannot be true.
    """
    limit = len(buf)
    unpack = _RANGE.unpack_from
    position = 0
    while position + HEADER_SIZE <= limit:
        base_offset, batch_length, last_offset_delta = unpack(buf, position)
        end = position + LENGTH_END + batch_length
        if batch_length < BATCH_LENGTH_MIN or end > limit:
            return
        yield position, end, base_offset, base_offset + last_offset_delta
        position = end


def batch_epochs(buf: ReadBuffer) -> Iterator[tuple[int, int]]:
    """Yield `(base_offset, leader_epoch)` of every batch that lies whole in `buf`."""
    for position, _, base_offset, _ in batch_ranges(buf):
        yield base_offset, _LEADER_EPOCH.unpack_from(buf, position + LENGTH_END)[0]


def batch_positions(buf: ReadBuffer) -> Iterator[int]:
    """Yield the position of every batch that lies whole in `buf`; see `batch_ranges`."""
    return (position for position, _, _, _ in batch_ranges(buf))
