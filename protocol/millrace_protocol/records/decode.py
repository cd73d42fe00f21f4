"""Read record batches back into tuples.

Owns the suspicion that the broker does not have: the CRC only says that the bytes are those the
producer sealed, so every length, count and delta behind it is checked here, and anything false is
`CorruptBatch`, never a crash, a loop or an allocation without bound. Refuses to know what is done
with records. Source: Kafka protocol guide, "Record"; the layout is drawn in `encode`.
"""

from collections.abc import Iterator
from typing import Final

from millrace_protocol.records.compression import Codec, CompressionError, decompress
from millrace_protocol.records.corruption import CorruptBatch, Fault
from millrace_protocol.records.encode import Record
from millrace_protocol.records.header import (
    HEADER_SIZE,
    PAYLOAD_BYTES_MAX,
    RECORD_SIZE_MIN,
    BatchHeader,
    ReadBuffer,
    batch_positions,
    batch_span,
)
from millrace_protocol.records.validate import check_batch
from millrace_protocol.records.varint import OFFSET_DELTA_WIDTHS, VARINTS

CHUNK_RECORDS: Final = 512
"""Records per list: below the 700 allocations after which CPython's collector looks at them."""

_UNUSUAL: Final = ~0x3FFE
_INT64_MAX: Final = 2**63 - 1
_NO_HEADERS: Final[tuple[tuple[str, bytes | None], ...]] = ()


def decode_records(
    buf: ReadBuffer,
    position: int = 0,
    *,
    check_crc: bool = True,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
) -> list[Record]:
    """Decode the one batch at `position` into `(offset, timestamp_ms, key, value, headers)`.

    Any batch, control batches included; bytes behind it are ignored. `limit_bytes` bounds the
    records once decompressed. Raises `CorruptBatch`.
    """
    header = check_batch(buf, position, check_crc=check_crc)
    payload = _Payload(buf, position, header, limit_bytes)
    return [record for chunk in payload.chunks(header.record_count) for record in chunk]


def decode_fetch(
    buf: ReadBuffer,
    *,
    from_offset: int = 0,
    chunk_records: int = CHUNK_RECORDS,
    check_crc: bool = True,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
) -> Iterator[tuple[list[Record], int]]:
    """Yield `(records, next_offset)` over the batches of a fetch, a chunk at a time.

    Records before `from_offset` are left out: a broker answers with whole batches, and the first
    may begin earlier. `next_offset` is where to go on once the chunk is done with; it also covers
    what yields no records, control batches and offsets that compaction removed, so a chunk may be
    empty. A last batch that is cut short ends the iteration. `limit_bytes` bounds each batch once
    decompressed. Raises `CorruptBatch` when it gets to the fault, after the chunks before it.
    """
    whole = buf if isinstance(buf, bytes) else bytes(buf)
    position = 0
    while position < len(whole):
        try:
            header = check_batch(whole, position, check_crc=check_crc)
        except CorruptBatch as corrupt:
            if corrupt.reason is Fault.TRUNCATED:
                return
            raise
        reached = from_offset
        if header.next_offset > from_offset and not header.is_control:
            payload = _Payload(whole, position, header, limit_bytes)
            for chunk in payload.chunks(chunk_records):
                if chunk[0][0] < from_offset:
                    chunk = [record for record in chunk if record[0] >= from_offset]
                if chunk:
                    reached = chunk[-1][0] + 1
                    yield chunk, reached
        if header.next_offset > reached:
            yield [], header.next_offset
        position += header.size_bytes


def offset_after(buf: ReadBuffer, *, from_offset: int) -> int:
    """Return the offset to fetch next, once all whole batches of a fetch have been read.

    At least `from_offset`; reads headers only.
    """
    reached = from_offset
    for position in batch_positions(buf):
        last_offset = batch_span(buf, position)[3]
        reached = max(reached, last_offset + 1)
    return reached


def decompress_payload(
    buf: ReadBuffer, position: int, header: BatchHeader, *, limit_bytes: int
) -> bytes:
    """Return a copy of the records of the batch at `position`, without their compression.

    Raises `CorruptBatch` if they take more than `limit_bytes` or are no stream of their codec.
    """
    payload = memoryview(buf)[position + HEADER_SIZE : position + header.size_bytes]
    try:
        return decompress(payload, header.codec, limit_bytes=limit_bytes)
    except CompressionError as error:
        raise CorruptBatch(
            f"the {header.codec.name.lower()} payload: {error}", position, Fault.PAYLOAD
        ) from error


class Malformed(Exception):
    """What is wrong with a record; `_Payload` adds where."""


class _Payload:
    """The records of one checked batch, decompressed."""

    __slots__ = (
        "_base_timestamp",
        "_batch_position",
        "_buf",
        "_end",
        "_fixed_timestamp",
        "_header",
        "_start",
    )

    def __init__(
        self, buf: ReadBuffer, position: int, header: BatchHeader, limit_bytes: int
    ) -> None:
        self._header = header
        self._batch_position = position
        self._base_timestamp = header.base_timestamp
        self._fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
        self._start, self._end = position + HEADER_SIZE, position + header.size_bytes
        if header.codec is Codec.NONE:
            self._buf = buf if isinstance(buf, bytes) else bytes(buf)
        else:
            self._buf = decompress_payload(buf, position, header, limit_bytes=limit_bytes)
            self._start, self._end = 0, len(self._buf)

    def chunks(self, chunk_records: int) -> Iterator[list[Record]]:
        """Yield all records, `chunk_records` at a time; none of the lists is empty."""
        position, first, count = self._start, 0, self._header.record_count
        read = (
            self._read_dense if count == self._header.last_offset_delta + 1 else self._read_sparse
        )
        previous_delta = -1
        while first < count:
            records: list[Record] = []
            stop = min(first + chunk_records, count)
            position = read(records, position, first, stop, previous_delta)
            if position > self._end:
                raise self._corrupt(stop - 1, position, "runs past the end of the batch")
            previous_delta = records[-1][0] - self._header.base_offset
            yield records
            first = stop
        if position != self._end:
            behind = f"and {self._end - position} bytes follow it"
            raise self._corrupt(count - 1, position, f"is the last, {behind}")

    def _read_dense(
        self, records: list[Record], position: int, first: int, stop: int, _: int
    ) -> int:
        """Append the records `[first, stop)` of a batch without gaps; return where they end."""
        for width, width_first, width_end in OFFSET_DELTA_WIDTHS:
            low, high = max(first, width_first), min(stop, width_end)
            if low < high:
                position = self._read_dense_run(records, position, low, high, width)
        return position

    # The hot loop, and where its time goes. One record of 100 bytes takes some 25 bytecodes beyond
    # what its tuple and its slice cost, because: lengths and counts are single bytes read in place,
    # with a second byte for the two that are often over 63; a time delta equal to the previous
    # record's reuses its timestamp; and in a batch without gaps the offset delta is known, so it is
    # compared and not decoded. `buf` is `bytes`, whose slices are what the caller gets.
    #
    # Each step only has to be right about records it accepts. All that is unusual (a null
    # value, a length over 8 KiB) or false fails the one test at the end, or the comparison, and is
    # read again by `_record`, which is slow, complete and says what is wrong. `_UNUSUAL` is what no
    # length of one or two bytes has: the sign in bit 0, and bits above 13, which a continuation bit
    # in the second byte also sets.
    def _read_dense_run(
        self, records: list[Record], position: int, first: int, stop: int, width: int
    ) -> int:
        buf, base_offset = self._buf, self._header.base_offset
        append, is_at = records.append, buf.startswith
        time_byte, timestamp = -1, 0
        offset = base_offset + first
        try:
            for offset_delta in VARINTS.row(stop)[first:]:
                start = position
                length = buf[position]
                position += 1
                if length > 127:
                    length += (buf[position] << 7) - 128
                    position += 1
                body = position
                byte = buf[position + 1]
                if byte == time_byte:
                    position += 2
                else:
                    timestamp, position = self._timestamp(position + 1)
                    time_byte = byte if byte < 128 else -1
                if is_at(offset_delta, position):
                    position += width
                    size = buf[position]
                    position += 1
                    if size == 1:
                        key = None
                    else:
                        if size > 127:
                            size += (buf[position] << 7) - 128
                            position += 1
                        length |= size & _UNUSUAL
                        size >>= 1
                        key = buf[position : position + size]
                        position += size
                    size = buf[position]
                    position += 1
                    if size > 127:
                        size += (buf[position] << 7) - 128
                        position += 1
                    end = position + (size >> 1)
                    if not (length | size) & _UNUSUAL:
                        record_end = body + (length >> 1)
                        count = buf[end]
                        if not count:
                            headers, headers_end = _NO_HEADERS, end + 1
                        elif count & 0x81:
                            headers_end = -1
                        else:
                            headers, headers_end = read_headers(
                                buf, end + 1, record_end, count >> 1
                            )
                        if headers_end == record_end:
                            append((offset, timestamp, key, buf[position:end], headers))
                            offset += 1
                            position = record_end
                            continue
                record, position = self._record(start, offset - base_offset)
                append(record)
                offset += 1
        except (IndexError, Malformed) as error:
            raise self._corrupt(offset - base_offset, start, error) from error
        return position

    def _read_sparse(
        self, records: list[Record], position: int, first: int, stop: int, previous_delta: int
    ) -> int:
        """Append the records `[first, stop)` of a compacted batch; return where they end."""
        base_offset = self._header.base_offset
        for index in range(first, stop):
            start = position
            try:
                record, position = self._record(start, None)
                delta = record[0] - base_offset
                if not previous_delta < delta <= self._header.last_offset_delta:
                    raise Malformed(f"has offset delta {delta} after {previous_delta}")
            except (IndexError, Malformed) as error:
                raise self._corrupt(index, start, error) from error
            previous_delta = delta
            records.append(record)
        return position

    def _record(self, position: int, expected_delta: int | None) -> tuple[Record, int]:
        """Read any record, field by field; return it and where it ends.

        Raises `Malformed` for everything that the record's own bytes can get wrong.
        """
        buf = self._buf
        length, position = read_varint(buf, position)
        end = position + length
        if length < RECORD_SIZE_MIN - 1 or end > self._end:
            raise Malformed(f"has a length of {length} and {self._end - position} bytes are left")
        timestamp, position = self._timestamp(position + 1)
        offset_delta, position = read_varint(buf, position)
        if expected_delta is not None and offset_delta != expected_delta:
            raise Malformed(f"has offset delta {offset_delta}")
        key, position = _nullable(buf, position, end)
        value, position = _nullable(buf, position, end)
        count, position = read_varint(buf, position)
        headers = _NO_HEADERS
        if count:
            headers, position = read_headers(buf, position, end, count)
        if position != end:
            raise Malformed(f"has a length of {length} and fields that end {position - end:+} off")
        return (self._header.base_offset + offset_delta, timestamp, key, value, headers), end

    def _timestamp(self, position: int) -> tuple[int, int]:
        """Read a time delta; return the record's time in ms, and where the delta ends."""
        delta, position = read_varint(self._buf, position)
        if self._fixed_timestamp is not None:
            return self._fixed_timestamp, position
        timestamp = self._base_timestamp + delta
        if not -_INT64_MAX - 1 <= timestamp <= _INT64_MAX:
            raise Malformed(f"has a timestamp out of range, {timestamp}")
        return timestamp, position

    def _corrupt(self, index: int, position: int, fault: object) -> CorruptBatch:
        if self._header.codec is not Codec.NONE:
            position = self._batch_position
        if isinstance(fault, IndexError):
            fault = "runs past the end of the batch"
        record = f"record {index}" if index >= 0 else "no record"
        return CorruptBatch(f"{record} {fault}", position, Fault.PAYLOAD)


def read_varint(buf: bytes, position: int) -> tuple[int, int]:
    """Read one number of up to 64 bits; return it and where it ends."""
    byte = buf[position]
    position += 1
    number = byte & 0x7F
    shift = 7
    while byte > 127:
        byte = buf[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise Malformed("has a number of more than ten bytes")
    if number > 0xFFFF_FFFF_FFFF_FFFF:
        raise Malformed("has a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), position


def _nullable(buf: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and as many bytes, which do not reach beyond `end`."""
    size, position = read_varint(buf, position)
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise Malformed(f"has a field of {size} bytes where {end - position} are left")
    return buf[position : position + size], position + size


def read_headers(
    buf: bytes, position: int, end: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Read `count` headers; two bytes is the least that one takes.

    A field of less than 64 bytes is read in place and not held against `end`: the caller compares
    where the headers end with where the record does.
    """
    if not 0 <= count <= (end - position) // 2:
        raise Malformed(f"has a count of {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        size = buf[position]
        if size & 0x81:
            name, position = _nullable(buf, position, end)
            if name is None:
                raise Malformed("has a header without a name")
        else:
            start = position + 1
            position = start + (size >> 1)
            name = buf[start:position]
        size = buf[position]
        if size & 0x81:
            value, position = _nullable(buf, position, end)
        else:
            start = position + 1
            position = start + (size >> 1)
            value = buf[start:position]
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise Malformed(f"has a header whose name is not UTF-8, {name[:40]!r}") from error
    return tuple(headers), position
