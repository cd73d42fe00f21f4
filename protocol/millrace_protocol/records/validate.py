"""Checks of record batches, for produce, replication and recovery.

Owns every check that needs only the header and the CRC, and the three edits a broker makes in
place. Records are not read: for an inconsistent payload behind a right CRC, `decode` on the
reader's side raises `CorruptBatch`. Source: Kafka protocol guide, "Record Batch"; Kafka's
`LogValidator` for what a client may send.
"""

import struct

import crc32c

from millrace_protocol.records.compression import EXPANSION_MAX, Codec
from millrace_protocol.records.corruption import BatchTooLarge, CorruptBatch, Fault
from millrace_protocol.records.header import (
    ATTRIBUTES_POSITION,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LEADER_EPOCH_POSITION,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_TIMESTAMP_POSITION,
    RECORD_COUNT_MAX,
    RECORD_SIZE_MIN,
    TRANSACTIONAL_BIT,
    BatchHeader,
    ReadBuffer,
    WriteBuffer,
    batch_extent,
    read_header,
)

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")
_CHECKED = struct.Struct(">qi4xbIhi30xi")
"""The header without what no check looks at."""
_OFFSET_MAX = 2**63 - 1
_ORDINARY_OFFSET_MAX = 2**62
"""No last offset delta leads from here beyond `_OFFSET_MAX`."""
_CODEC_MAX = max(Codec)
_CODECS = frozenset(map(int, Codec))
"""The attributes of an ordinary batch: a codec and no other."""


def batch_crc(buf: ReadBuffer, position: int, size_bytes: int) -> int:
    """Return the CRC-32C that the batch of `size_bytes` at `position` should carry; no copy."""
    return crc32c.crc32c(memoryview(buf)[position + CRC_START : position + size_bytes])


def check_batch(
    buf: ReadBuffer, position: int = 0, end: int | None = None, *, check_crc: bool = True
) -> BatchHeader:
    """Check the batch that starts at `position` and return its header.

    Bytes after the batch and before `end` (exclusive; the buffer's end if not given) are allowed.
    Checks, in this order: length bounds, magic, that the batch is whole, CRC-32C, fields. Accepts
    all that a log may hold: control batches, and batches that compaction has thinned out.
    `check_crc=False` is for bytes whose CRC the caller has just checked.

    Raises `CorruptBatch`. Its reason is `Fault.TRUNCATED` if the batch runs past `end`, which in
    recovery is a torn tail and elsewhere means that more bytes are needed.
    """
    limit = len(buf) if end is None else end
    if limit - position < HEADER_SIZE:
        raise CorruptBatch(
            f"a batch header takes {HEADER_SIZE} bytes, and the bytes end after {limit - position}",
            position,
            Fault.TRUNCATED,
        )
    header = read_header(buf, position)
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptBatch(
            f"batch length {header.batch_length} is less than {BATCH_LENGTH_MIN}, "
            "the rest of the header",
            position,
            Fault.LENGTH,
        )
    if header.magic != MAGIC:
        raise CorruptBatch(
            f"magic {header.magic}, but only record batches of magic {MAGIC} are understood",
            position,
            Fault.MAGIC,
        )
    size_bytes = header.size_bytes
    if size_bytes > limit - position:
        raise CorruptBatch(
            f"the batch claims {size_bytes} bytes and {limit - position} are left",
            position,
            Fault.TRUNCATED,
        )
    if check_crc:
        crc = batch_crc(buf, position, size_bytes)
        if crc != header.crc:
            raise CorruptBatch(
                f"CRC-32C is {crc:#010x} and the header says {header.crc:#010x}: "
                "the bytes changed after they were sealed",
                position,
                Fault.CRC,
            )
    _check_fields(header, position)
    return header


def check_batches(
    buf: ReadBuffer, *, check_crc: bool = True
) -> tuple[list[int], CorruptBatch | None]:
    """Check one batch after the other, as `check_batch` does; return where the sound ones begin.

    With them, what is wrong with the first that is not sound, None if all are. Nothing behind that
    one is looked at.
    """
    # Each call made per batch costs time. So the conditions of nearly every sound batch are checked
    # here, with one call for the header and two for the CRC. `check_batch` decides all others.
    view = memoryview(buf)
    limit = len(view)
    positions: list[int] = []
    position = 0
    while position < limit:
        if position + HEADER_SIZE <= limit:
            base_offset, batch_length, magic, crc, codec, delta, count = _CHECKED.unpack_from(
                view, position
            )
            end = position + LENGTH_END + batch_length
            if (
                magic == MAGIC
                and batch_length >= BATCH_LENGTH_MIN
                and end <= limit
                and 0 <= codec <= _CODEC_MAX  # and no other attribute
                and 0 <= base_offset <= _ORDINARY_OFFSET_MAX
                and delta >= 0
                and 0 <= count <= delta + 1
                and count <= RECORD_COUNT_MAX
                and RECORD_SIZE_MIN * count
                <= (batch_length - BATCH_LENGTH_MIN) * EXPANSION_MAX[codec]
                and (not check_crc or crc32c.crc32c(view[position + CRC_START : end]) == crc)
            ):
                positions.append(position)
                position = end
                continue
        try:
            header = check_batch(view, position, check_crc=check_crc)
        except CorruptBatch as corrupt:
            return positions, corrupt
        positions.append(position)
        position += header.size_bytes
    return positions, None


def check_produced_batch(buf: ReadBuffer, *, max_bytes: int) -> BatchHeader:
    """Check a batch that a client asks to append: `buf` is exactly one batch.

    On top of `check_batch`: at most `max_bytes`, nothing behind the batch, no attribute but the
    codec, one offset per record and at least one record, timestamps that a time index can hold
    (`-1 <= base_timestamp <= max_timestamp`, or a `max_timestamp` of -1, which is not computed
    yet), and a producer id with an epoch and a sequence, or none.

    Raises `BatchTooLarge` before the bytes are read, and `CorruptBatch`.
    """
    size = len(buf)
    if HEADER_SIZE <= size <= max_bytes:
        # Each call made per batch costs time. So the conditions of nearly every batch are checked
        # here; the checks below decide all others, and name what is wrong.
        header = read_header(buf)
        count = header.record_count
        if (
            header.magic == MAGIC
            and header.batch_length == size - LENGTH_END
            and header.attributes in _CODECS
            and 0 < count <= RECORD_COUNT_MAX
            and count == header.last_offset_delta + 1
            and RECORD_SIZE_MIN * count <= (size - HEADER_SIZE) * EXPANSION_MAX[header.attributes]
            and 0 <= header.base_offset <= _ORDINARY_OFFSET_MAX
            and -1 <= header.base_timestamp <= header.max_timestamp
            and (
                header.producer_epoch >= 0 and header.base_sequence >= 0
                if header.producer_id >= 0
                else header.producer_id == -1
            )
            and crc32c.crc32c(memoryview(buf)[CRC_START:]) == header.crc
        ):
            return header
    if size >= HEADER_SIZE:
        size_bytes = batch_extent(buf)[1]
        if size_bytes > max_bytes:
            raise BatchTooLarge(size_bytes, max_bytes)
        if HEADER_SIZE <= size_bytes < len(buf):
            raise CorruptBatch(
                f"the batch has {size_bytes} bytes and the field {len(buf)}: "
                "send one batch per partition",
                size_bytes,
                Fault.LENGTH,
            )
    header = check_batch(buf)
    fault = _produced_fault(header)
    if fault is not None:
        raise CorruptBatch(fault, 0, Fault.FIELD)
    return header


def assign(buf: WriteBuffer, position: int = 0, *, base_offset: int, leader_epoch: int) -> None:
    """Write the offset and epoch the leader gives the batch; both lie outside the CRC."""
    _I64.pack_into(buf, position, base_offset)
    _I32.pack_into(buf, position + LEADER_EPOCH_POSITION, leader_epoch)


def stamp_log_append_time(buf: WriteBuffer, position: int = 0, *, timestamp_ms: int) -> None:
    """Give every record of a checked batch the broker's time, and seal the batch again."""
    attributes = _I16.unpack_from(buf, position + ATTRIBUTES_POSITION)[0] | LOG_APPEND_TIME_BIT
    _I16.pack_into(buf, position + ATTRIBUTES_POSITION, attributes)
    set_max_timestamp(buf, position, timestamp_ms=timestamp_ms)


def set_max_timestamp(buf: WriteBuffer, position: int = 0, *, timestamp_ms: int) -> None:
    """Write the largest timestamp of a checked batch, and seal it again."""
    _I64.pack_into(buf, position + MAX_TIMESTAMP_POSITION, timestamp_ms)
    seal(buf, position)


def seal(buf: WriteBuffer, position: int = 0) -> None:
    """Write the CRC-32C of the batch at `position`, whose length is already right."""
    crc = batch_crc(buf, position, batch_extent(buf, position)[1])
    _U32.pack_into(buf, position + CRC_POSITION, crc)


def _check_fields(header: BatchHeader, position: int) -> None:
    codec = header.attributes & CODEC_MASK
    if codec > _CODEC_MAX:
        raise CorruptBatch(
            f"codec {codec} does not exist: none 0, gzip 1, snappy 2, lz4 3, zstd 4",
            position,
            Fault.CODEC,
        )
    delta, count = header.last_offset_delta, header.record_count
    if header.base_offset < 0:
        fault = f"base offset {header.base_offset} is negative"
    elif delta < 0 or header.base_offset > _OFFSET_MAX - 1 - delta:
        fault = f"last offset delta {delta} on base offset {header.base_offset} is out of range"
    elif not 0 <= count <= delta + 1:
        fault = f"record count {count} does not fit into {delta + 1} offsets"
    elif count > RECORD_COUNT_MAX:
        fault = f"record count {count} is over the limit of {RECORD_COUNT_MAX}"
    elif count * RECORD_SIZE_MIN > (header.size_bytes - HEADER_SIZE) * EXPANSION_MAX[codec]:
        fault = (
            f"record count {count} does not fit into {header.size_bytes - HEADER_SIZE} bytes of "
            f"codec {Codec(codec).name.lower()}: a record takes at least {RECORD_SIZE_MIN} bytes"
        )
    else:
        return
    raise CorruptBatch(fault, position, Fault.FIELD)


def _produced_fault(header: BatchHeader) -> str | None:
    """Return the reason why a client may not produce a sound header, or None."""
    attributes = header.attributes
    if attributes & ~CODEC_MASK:
        if attributes & CONTROL_BIT:
            return "only brokers write control batches: clear attribute bit 5"
        if attributes & TRANSACTIONAL_BIT:
            return "transactions are not supported: clear attribute bit 4"
        if attributes & LOG_APPEND_TIME_BIT:
            return "only brokers set log append time: clear attribute bit 3"
        return f"attributes {attributes & 0xFFFF:#06x}: only the codec, bits 0-2, may be set"
    count = header.record_count
    if count < 1:
        return "the batch holds no records"
    if count != header.last_offset_delta + 1:
        return (
            f"record count {count} and last offset delta {header.last_offset_delta} disagree: "
            "a new batch has one offset per record"
        )
    first, newest = header.base_timestamp, header.max_timestamp
    if not (-1 <= first <= newest or newest == -1 < first):
        return f"base timestamp {first} and max timestamp {newest} are not in order, or below -1"
    if header.producer_id < -1:
        return f"producer id {header.producer_id} is neither an id nor -1, none"
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        return (
            f"producer id {header.producer_id} needs an epoch and a sequence, "
            f"and has {header.producer_epoch} and {header.base_sequence}"
        )
    return None
