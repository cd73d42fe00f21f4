"""Read record batches back into columns and tuples.

Owns the checks that the broker does not make: the CRC only proves that the bytes are those the
producer sealed, so every length, count and delta behind it is checked here, and anything false is
`CorruptBatch`, never a crash, a loop or an allocation without bound. Refuses to know what is done
with records. Source: Kafka protocol guide, "Record"; the layout is drawn in `encode`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from millrace_protocol.records import native
from millrace_protocol.records.columns import NO_HEADERS, Columns
from millrace_protocol.records.compression import Codec, CompressionError, decompress
from millrace_protocol.records.corruption import CorruptBatch, Fault
from millrace_protocol.records.encode import Record
from millrace_protocol.records.fields import (
    Malformed,
    read_headers,
    read_nullable,
    read_varint,
)
from millrace_protocol.records.header import (
    HEADER_SIZE,
    PAYLOAD_BYTES_MAX,
    RECORD_SIZE_MIN,
    BatchHeader,
    ReadBuffer,
)
from millrace_protocol.records.table_run import TableRun, read_table_run
from millrace_protocol.records.validate import check_batch
from millrace_protocol.records.varint import OFFSET_DELTA_WIDTHS, TABLE_SIZE, VARINTS

CHUNK_RECORDS: Final = 512
"""Records per list: below the 700 allocations after which CPython's collector looks at them."""

_INT64_MAX: Final = 2**63 - 1

_BEYOND: Final = 1 << 62
_SIZES: Final = [_BEYOND if byte & 1 else (byte & 0x7F) >> 1 for byte in range(256)]
"""The length that its first byte stands for, `_BEYOND` if negative."""
_SIZES_ABOVE: Final = [byte << 6 if byte < 128 else _BEYOND for byte in range(256)]
"""What the second byte adds, `_BEYOND` if it is not the last."""


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
    payload = _payload_of(buf, position, header, limit_bytes)
    return [record for columns in payload.chunks(CHUNK_RECORDS) for record in columns.records()]


def decode_fetch(
    buf: ReadBuffer,
    *,
    from_offset: int = 0,
    chunk_records: int = CHUNK_RECORDS,
    check_crc: bool = True,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
) -> Iterator[tuple[list[Record], int]]:
    """Yield `(records, next_offset)` over the batches of a fetch, a chunk at a time.

    As `decode_columns`, in tuples.
    """
    for columns, next_offset in decode_columns(
        buf,
        from_offset=from_offset,
        chunk_records=chunk_records,
        check_crc=check_crc,
        limit_bytes=limit_bytes,
    ):
        yield list(columns.records()), next_offset


def decode_columns(
    buf: ReadBuffer,
    *,
    from_offset: int = 0,
    chunk_records: int = CHUNK_RECORDS,
    check_crc: bool = True,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
) -> Iterator[tuple[Columns, int]]:
    """Yield `(columns, next_offset)` over the batches of a fetch, a chunk at a time.

    Records before `from_offset` are left out: a broker sends whole batches, and the first
    may begin earlier. `next_offset` is where to go on once the chunk is done with; it also covers
    what yields no records, control batches and offsets that compaction removed, so a chunk may be
    empty. A last batch that is cut short ends the iteration. `limit_bytes` bounds each batch once
    decompressed. `buf` is contiguous, and does not change before the last chunk. Raises
    `CorruptBatch` when it gets to the fault, after the chunks before it.
    """
    position = 0
    while position < len(buf):
        try:
            header = check_batch(buf, position, check_crc=check_crc)
        except CorruptBatch as corrupt:
            if corrupt.reason is Fault.TRUNCATED:
                return
            raise
        reached = from_offset
        if header.next_offset > from_offset and not header.is_control:
            payload = _payload_of(buf, position, header, limit_bytes)
            for columns in payload.chunks(chunk_records):
                columns.drop_before(from_offset)
                if len(columns):
                    reached = columns.offsets[-1] + 1
                    yield columns, reached
        if header.next_offset > reached:
            yield Columns(range(0)), header.next_offset
        position += header.size_bytes


def decode_payload(
    payload: bytes, header: BatchHeader, *, chunk_records: int = CHUNK_RECORDS
) -> Iterator[list[Record]]:
    """Yield the records of a checked batch, a chunk at a time, from what `decompress_payload` gave.

    For callers that decompress and decode in different places.
    Raises `CorruptBatch`, after the chunks before.
    """
    for columns in _Payload(header, payload, 0, len(payload)).chunks(chunk_records):
        yield list(columns.records())


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


def _payload_of(buf: ReadBuffer, position: int, header: BatchHeader, limit_bytes: int) -> _Payload:
    if header.codec is not Codec.NONE:
        payload = decompress_payload(buf, position, header, limit_bytes=limit_bytes)
        return _Payload(header, payload, 0, len(payload), position)
    batch = memoryview(buf)[position : position + header.size_bytes]
    return _Payload(header, batch, HEADER_SIZE, header.size_bytes, position)


class _Payload:
    """The records of one checked batch, decompressed: `buf[start:end]`.

    `batch_position` is where the batch begins in what the caller reads.
    """

    __slots__ = (
        "_base_timestamp",
        "_batch_position",
        "_buf",
        "_end",
        "_fixed_timestamp",
        "_header",
        "_is_time_plain",
        "_start",
    )

    def __init__(
        self,
        header: BatchHeader,
        buf: bytes | memoryview,
        start: int,
        end: int,
        batch_position: int = 0,
    ) -> None:
        self._header = header
        self._buf, self._start, self._end = buf, start, end
        self._batch_position = batch_position
        self._base_timestamp = header.base_timestamp
        self._fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
        self._is_time_plain = (
            not header.is_log_append_time and abs(header.base_timestamp) < _INT64_MAX - TABLE_SIZE
        )

    def chunks(self, chunk_records: int) -> Iterator[Columns]:
        """Yield all records, `chunk_records` at a time; none of the chunks is empty."""
        position, first, count = self._start, 0, self._header.record_count
        is_dense = count == self._header.last_offset_delta + 1
        previous_delta = -1
        while first < count:
            stop, start = min(first + chunk_records, count), position
            if is_dense:
                columns, position = self._read_dense(position, first, stop)
            else:
                columns, position = self._read_sparse(position, first, stop, previous_delta)
                previous_delta = columns.offsets[-1] - self._header.base_offset
            if position > self._end:
                raise self._fault_of_chunk(columns, start, first)
            yield columns
            first = stop
        if position != self._end:
            behind = f"and {self._end - position} bytes follow it"
            raise self._corrupt(count - 1, position, f"is the last, {behind}")

    def _read_dense(self, position: int, first: int, stop: int) -> tuple[Columns, int]:
        """Read the records `[first, stop)` of a batch without gaps; return where they end."""
        base_offset = self._header.base_offset
        columns = Columns(range(base_offset + first, base_offset + stop))
        if native.compiled is not None:
            return columns, self._read_compiled(columns, position, first)
        buf = self._bytes()
        for width, width_first, width_end in OFFSET_DELTA_WIDTHS:
            low, high = max(first, width_first), min(stop, width_end)
            while low < high:
                run = read_table_run(
                    buf, position, self._end, first_delta=low, count=high - low, width=width
                )
                if run is None or not self._take_run(columns, low - first, run):
                    position = self._read_one_by_one(columns, position, first, low, high, width)
                    break
                position = run.end
                low += len(run.values)
        return columns, position

    def _read_compiled(self, columns: Columns, position: int, first: int) -> int:
        """Read all records of a chunk by the compiled reader; return where they end."""
        assert native.compiled is not None
        row = 0
        while True:
            row, position = native.compiled.read_records(
                self._buf,
                position,
                self._end,
                row,
                first + row,
                self._base_timestamp,
                self._fixed_timestamp,
                columns.timestamps_ms,
                columns.keys,
                columns.values,
                columns.headers,
            )
            if row == len(columns):
                return position
            position = self._read_unusual(columns, row, position, first)
            row += 1

    def _take_run(self, columns: Columns, index: int, run: TableRun) -> bool:
        """Put a run into the rows from `index` on; False if its times cannot be told so simply."""
        end = index + len(run.values)
        base = self._base_timestamp
        if self._fixed_timestamp is not None:
            columns.timestamps_ms[index:end] = [self._fixed_timestamp] * (end - index)
        elif self._is_time_plain:
            columns.timestamps_ms[index:end] = [base + delta for delta in run.time_deltas]
        else:
            return False
        if run.keys is not None:
            columns.keys[index:end] = run.keys
        columns.values[index:end] = run.values
        return True

    # The hot loop, and where its time goes. One record of 100 bytes takes some 25 bytecodes beyond
    # what its slice costs, because: lengths are single bytes looked up in a table, with a second
    # byte for those that are often over 63; a time delta equal to the previous record's reuses its
    # timestamp; in a batch without gaps the offset delta is known, so it is compared and not
    # decoded; and a null key or no headers are in the columns before they are read. `buf` is
    # `bytes`, whose slices are what the caller gets.
    #
    # Each step only has to be right about records it accepts. All that is unusual (a null value, a
    # length over 8 KiB) or false makes one of the comparisons fail or an index run past the end,
    # because the tables have a number beyond every buffer for it, and is read again by `_record`,
    # which is slow, complete and names the fault.
    def _read_one_by_one(
        self, columns: Columns, position: int, first: int, low: int, high: int, width: int
    ) -> int:
        """Read the records `[low, high)` of a chunk from `first` on; return where they end."""
        buf, sizes, sizes_above = self._bytes(), _SIZES, _SIZES_ABOVE
        timestamps, keys, values = columns.timestamps_ms, columns.keys, columns.values
        base_timestamp, delta_end = self._base_timestamp, _BEYOND if self._is_time_plain else 0
        time_byte, timestamp = -1, 0
        for index, offset_delta in enumerate(VARINTS.row(high, low), low - first):
            start = position
            try:
                length = sizes[byte := buf[position]]
                position += 1
                if byte > 127:
                    length += sizes_above[buf[position]]
                    position += 1
                end = position + length
                byte = buf[position + 1]
                position += 2
                if byte != time_byte:
                    time_at = position - 1
                    delta, time_byte = sizes[byte], byte
                    if byte > 127:
                        delta += sizes_above[buf[position]]
                        position += 1
                        time_byte = -1
                    if delta < delta_end:
                        timestamp = base_timestamp + delta
                    else:
                        timestamp, position = self._timestamp(time_at)
                timestamps[index] = timestamp
                key_at = position + width
                if buf[position:key_at] == offset_delta:
                    position = key_at + 1
                    if (byte := buf[key_at]) != 1:
                        size = sizes[byte]
                        if byte > 127:
                            size += sizes_above[buf[position]]
                            position += 1
                        keys[index] = buf[position : position + size]
                        position += size
                    size = sizes[byte := buf[position]]
                    position += 1
                    if byte > 127:
                        size += sizes_above[buf[position]]
                        position += 1
                    headers_end = (value_end := position + size) + 1
                    if (count := buf[value_end]) and headers_end < end and not count & 0x81:
                        columns.headers[index], headers_end = read_headers(
                            buf, headers_end, end, count >> 1
                        )
                        count = 0
                    if headers_end == end and not count:
                        values[index] = buf[position:value_end]
                        position = end
                        continue
            except (IndexError, Malformed):
                pass
            position = self._read_unusual(columns, index, start, first)
        return position

    def _read_unusual(self, columns: Columns, index: int, position: int, first: int) -> int:
        """Read any record of a batch without gaps into a row; return where it ends."""
        try:
            return self._record(columns, index, position, first + index)[1]
        except (IndexError, Malformed) as error:
            raise self._corrupt(first + index, position, error) from error

    def _fault_of_chunk(self, columns: Columns, position: int, first: int) -> CorruptBatch:
        """What is wrong with a chunk whose records run past the end of their batch."""
        try:
            for row in range(len(columns)):
                position = self._read_unusual(columns, row, position, first)
        except CorruptBatch as corrupt:
            return corrupt
        raise AssertionError("a record that was read is sound, and yet beyond its batch")

    def _read_sparse(
        self, position: int, first: int, stop: int, previous_delta: int
    ) -> tuple[Columns, int]:
        """Read the records `[first, stop)` of a compacted batch; return where they end."""
        base_offset = self._header.base_offset
        offsets = [0] * (stop - first)
        columns = Columns(offsets)
        for index in range(stop - first):
            start = position
            try:
                delta, position = self._record(columns, index, start, None)
                if not previous_delta < delta <= self._header.last_offset_delta:
                    raise Malformed(f"has offset delta {delta} after {previous_delta}")
            except (IndexError, Malformed) as error:
                raise self._corrupt(first + index, start, error) from error
            previous_delta = delta
            offsets[index] = base_offset + delta
        return columns, position

    def _record(
        self, columns: Columns, index: int, position: int, expected_delta: int | None
    ) -> tuple[int, int]:
        """Read any record into a row, field by field; return its offset delta and where it ends.

        Raises `Malformed` for everything that the record's own bytes can get wrong.
        """
        buf = self._bytes()
        length, position = read_varint(buf, position)
        end = position + length
        if length < RECORD_SIZE_MIN - 1 or end > self._end:
            raise Malformed(f"has a length of {length} and {self._end - position} bytes are left")
        timestamp, position = self._timestamp(position + 1)
        offset_delta, position = read_varint(buf, position)
        if expected_delta is not None and offset_delta != expected_delta:
            raise Malformed(f"has offset delta {offset_delta}")
        key, position = read_nullable(buf, position, end)
        value, position = read_nullable(buf, position, end)
        count, position = read_varint(buf, position)
        headers = NO_HEADERS
        if count:
            headers, position = read_headers(buf, position, end, count)
        if position != end:
            raise Malformed(f"has a length of {length} and fields that end {position - end:+} off")
        columns.timestamps_ms[index] = timestamp
        columns.keys[index], columns.values[index] = key, value
        columns.headers[index] = headers
        return offset_delta, end

    def _timestamp(self, position: int) -> tuple[int, int]:
        """Read a time delta; return the record's time in ms, and where the delta ends."""
        delta, position = read_varint(self._bytes(), position)
        if self._fixed_timestamp is not None:
            return self._fixed_timestamp, position
        timestamp = self._base_timestamp + delta
        if not -_INT64_MAX - 1 <= timestamp <= _INT64_MAX:
            raise Malformed(f"has a timestamp out of range, {timestamp}")
        return timestamp, position

    def _bytes(self) -> bytes:
        """The buffer with slices that are keys and values; the first call may copy it."""
        if not isinstance(self._buf, bytes):
            self._buf = bytes(self._buf)
        return self._buf

    def _corrupt(self, index: int, position: int, fault: object) -> CorruptBatch:
        position += self._batch_position
        if self._header.codec is not Codec.NONE:
            position = self._batch_position
        if isinstance(fault, IndexError):
            fault = "runs past the end of the batch"
        record = f"record {index}" if index >= 0 else "no record"
        return CorruptBatch(f"{record} {fault}", position, Fault.PAYLOAD)
