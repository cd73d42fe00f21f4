"""Whole fetches to Arrow columns.

Owns the vectorised reading of records; the layout is drawn in `encode`. Refuses to know topics and
partitions, which the caller adds as columns. Imports numpy and pyarrow (the
`arrow` extra), so nothing else in this package imports it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace_protocol.records import native
from millrace_protocol.records.arrow_columns import HEADER_TYPE, binary_column, header_column, items
from millrace_protocol.records.corruption import CorruptBatch, Fault
from millrace_protocol.records.decode import decode_records, decompress_payload
from millrace_protocol.records.fields import Malformed, read_headers
from millrace_protocol.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    PAYLOAD_BYTES_MAX,
    BatchHeader,
    ReadBuffer,
    read_header,
)
from millrace_protocol.records.native import BATCH_NUMBERS, FIELDS
from millrace_protocol.records.starts import Misplaced, RecordStarts
from millrace_protocol.records.validate import check_batches
from millrace_protocol.records.varint_arrays import NoVarint, VarintArrays

_Integers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

FETCH_PAYLOAD_BYTES_MAX: Final = 1024 * 1024 * 1024
"""How large the records of one fetch may be once decompressed; Arrow's offsets have 31 bits."""

_BATCH_HEADER: Final = np.dtype(
    {
        "names": [field.name for field in fields(BatchHeader)],
        "formats": [f">{code}" for code in HEADER.format.removeprefix(">")],
    }
)
"""The header of a batch as a row of a table."""
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(HEADER_TYPE), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
    ]
)
IS_LOG_APPEND_TIME: Final = pa.field("is_log_append_time", pa.bool_(), nullable=False)
"""Whether the broker set the timestamp, and not the producer; decoded only if named."""
_FIELDS: Final = {field.name: field for field in (*SCHEMA, IS_LOG_APPEND_TIME)}


def decode_arrow(
    buf: ReadBuffer,
    *,
    from_offset: int = 0,
    columns: Sequence[str] = tuple(SCHEMA.names),
    check_crc: bool = True,
    limit_bytes: int = FETCH_PAYLOAD_BYTES_MAX,
    positions: Sequence[int] | None = None,
) -> pa.RecordBatch:
    """Decode all whole batches of a fetch into the named columns: of `SCHEMA`, and
    `IS_LOG_APPEND_TIME`.

    Leaves out control batches, records before `from_offset`, and a last batch that is cut short;
    `offset_after` tells where to go on. `limit_bytes` bounds the records of all batches together,
    once decompressed. `positions` are those of the batches, if `check_batches` has found them
    sound before. Raises `CorruptBatch`, before any Arrow array is built.
    """
    fetch = ArrowFetch(
        buf,
        from_offset=from_offset,
        check_crc=check_crc,
        limit_bytes=limit_bytes,
        positions=positions,
    )
    records = pa.RecordBatch.from_arrays(
        [fetch.column(name) for name in columns],
        schema=pa.schema([_FIELDS[name] for name in columns]),
    )
    if fetch.count and fetch.offsets[0] < from_offset:
        return records.filter(pa.array(fetch.offsets >= from_offset))
    return records


def decoding_parts(
    buf: ReadBuffer,
    positions: Sequence[int],
    *,
    end_offset: int,
    records_max: int,
    compressed_bytes_max: int,
) -> Iterator[Sequence[int]]:
    """Cut the batches of a fetch, which begin at `positions`, into parts to decode one by one.

    A part has at most `records_max` records and, if any batch of the fetch is compressed, at most
    `compressed_bytes_max` bytes: all batches of a part are copied as soon as one is compressed,
    and nothing tells before how large they become. A batch that is over a limit is a part of its
    own. Leaves out batches that begin at or behind `end_offset`. `check_batches` has found all of
    them sound.
    """
    headers = _batch_headers(memoryview(buf), np.array(positions, np.int64))
    is_wanted = headers["base_offset"] < end_offset
    if not is_wanted.all():
        headers = headers[is_wanted]
        positions = np.array(positions, np.int64)[is_wanted].tolist()
    is_copied = bool((headers["attributes"] & CODEC_MASK).any())
    bounds = (
        (np.cumsum(headers["record_count"], dtype=np.int64), records_max),
        (np.cumsum(headers["batch_length"] * is_copied, dtype=np.int64), compressed_bytes_max),
    )
    first = 0
    while first < len(positions):
        stops = [
            int(np.searchsorted(sums, (sums[first - 1] if first else 0) + limit, side="right"))
            for sums, limit in bounds
        ]
        stop = max(first + 1, min(stops))
        yield positions[first:stop]
        first = stop


# Why a whole fetch. A NumPy call costs a microsecond or more whatever its length, and reading a
# batch takes some sixty of them: for 16 KiB batches of 100-byte records that is 860 ns a record,
# and over 64 such batches at once 260. So the batches are read as one, uncompressed ones where
# they lie, and a constant of each batch is repeated for its records.
#
# Only the chain of lengths, each of which leads to the next, is read by `RecordStarts`, and not
# always as an array. From there on every field is one gather over all records: `_varints` reads a
# number at each of the positions it is given, and returns where each number ends, which is where
# the next field begins. All checks are made on these arrays. When one fails, the tuple decoder
# reads that batch again, for the sole purpose of saying what is wrong with it.
class ArrowFetch:
    """The records of a fetch, all checked once this is made; columns are built when asked for.

    `count` records, as positions in one buffer, which has to stay as it is as long as this is
    used. `offsets` has theirs, int64. Those before `from_offset` are among them where they share
    a batch with one that is not. Raises `CorruptBatch`.

    `positions` are those of the batches to decode, if `check_batches` has found them sound before.
    """

    def __init__(
        self,
        buf: ReadBuffer,
        *,
        from_offset: int = 0,
        check_crc: bool = True,
        limit_bytes: int = FETCH_PAYLOAD_BYTES_MAX,
        positions: Sequence[int] | None = None,
    ) -> None:
        self._source = memoryview(buf)
        if len(self._source) > FETCH_PAYLOAD_BYTES_MAX:
            raise ValueError(
                f"{len(self._source)} bytes in one fetch: ask for at most {FETCH_PAYLOAD_BYTES_MAX}"
            )
        if positions is None:
            positions = self._sound_batches(check_crc)
        self._positions, self._batch_headers = self._shown_batches(positions, from_offset)
        self._flat, extents = self._lay_out(limit_bytes)
        self._counts = self._constants("record_count")
        self._ends = np.cumsum(self._counts)
        self.count = int(self._ends[-1]) if len(self._ends) else 0
        if native.compiled is not None:
            self._read_compiled(extents)
        else:
            self._numbers = VarintArrays(self._flat)
            self._read_fields(self._record_starts(extents, self._counts.tolist()))

    def column(self, name: str, first: int = 0, stop: int | None = None) -> pa.Array:
        """The column `name` of the records `[first, stop)`, in an array of its own."""
        rows = slice(first, stop)
        match name:
            case "key":
                return binary_column(self._flat, self._keys[rows], self._key_sizes[rows])
            case "value":
                return binary_column(self._flat, self._values[rows], self._value_sizes[rows])
            case "headers":
                return header_column(self._header_counts, self._headers)[rows]
            case "offset":
                return pa.array(self.offsets[rows])
            case "timestamp":
                return pa.array(self._timestamps[rows]).view(SCHEMA.field("timestamp").type)
            case "is_log_append_time":
                return pa.array(self._is_log_append_time[rows])
            case _:
                raise KeyError(name)

    @property
    def has_log_append_time(self) -> bool:
        """Whether the broker set the timestamps of any batch, and not the producer."""
        return bool((self._batch_headers["attributes"] & LOG_APPEND_TIME_BIT).any())

    def size_bytes(self, columns: Sequence[str]) -> int:
        """Bytes of the keys and values among `columns`, of all records together."""
        sizes = {"key": self._key_sizes, "value": self._value_sizes}
        return sum(int(np.maximum(sizes[name], 0).sum()) for name in columns if name in sizes)

    @property
    def _is_log_append_time(self) -> _Flags:
        """Whether each record has the timestamp of its batch."""
        is_set: _Flags = self._repeated("attributes") & LOG_APPEND_TIME_BIT != 0
        return is_set

    def _sound_batches(self, check_crc: bool) -> list[int]:
        """Return where the whole batches begin."""
        found, fault = check_batches(self._source, check_crc=check_crc)
        if fault is not None and fault.reason is not Fault.TRUNCATED:
            raise fault
        return found

    def _shown_batches(
        self, found: Sequence[int], from_offset: int
    ) -> tuple[_Integers, npt.NDArray[np.void]]:
        """Return where the batches begin that have records to show, and their headers."""
        positions = np.array(found, np.int64)
        headers = _batch_headers(self._source, positions)
        last_offsets = headers["base_offset"] + headers["last_offset_delta"]
        is_shown = (last_offsets >= from_offset) & (headers["attributes"] & CONTROL_BIT == 0)
        if is_shown.all():
            return positions, headers
        return positions[is_shown], headers[is_shown]

    def _lay_out(self, limit_bytes: int) -> tuple[memoryview, list[tuple[int, int]]]:
        """Return one buffer, and where in it each batch's records begin and end."""
        if not (self._batch_headers["attributes"] & CODEC_MASK).any():
            firsts = self._positions + HEADER_SIZE
            ends = self._positions + LENGTH_END + self._batch_headers["batch_length"]
            return self._source, list(zip(firsts.tolist(), ends.tolist(), strict=True))
        parts: list[bytes] = []
        extents: list[tuple[int, int]] = []
        end = 0
        for position in self._positions.tolist():
            header = read_header(self._source, position)
            room = min(limit_bytes - end, PAYLOAD_BYTES_MAX)
            parts.append(decompress_payload(self._source, position, header, limit_bytes=room))
            extents.append((end, end + len(parts[-1])))
            end = extents[-1][1]
        return memoryview(b"".join(parts)), extents

    def _record_starts(self, extents: list[tuple[int, int]], counts: list[int]) -> _Integers:
        """Return where each record begins; together, those of a batch fill its extent.

        A sign is not looked at here; it makes the length negative in `_read_fields`.
        """
        starts = RecordStarts(self._flat)
        try:
            starts.follow_batches(extents, counts)
        except Misplaced as misplaced:
            raise self._corrupt(misplaced.index) from None
        return starts.positions()

    def _read_fields(self, starts: _Integers) -> None:
        lengths, bodies = self._varints(starts)
        ends = bodies + lengths
        self._require(lengths > 0)
        time_deltas, position = self._varints(bodies + 1)
        offset_deltas, position = self._varints(position)
        self._key_sizes, self._keys = self._varints(position)
        position = self._skip(self._keys, self._key_sizes, ends)
        self._value_sizes, self._values = self._varints(position)
        position = self._skip(self._values, self._value_sizes, ends)
        self._header_counts, position = self._varints(position)
        position = self._read_headers(position, ends)
        self._require(position == ends)
        self.offsets = self._absolute_offsets(offset_deltas)
        self._timestamps = self._absolute_timestamps(time_deltas)

    def _read_compiled(self, extents: list[tuple[int, int]]) -> None:
        """Sets what `_read_fields` sets, by the compiled reader."""
        assert native.compiled is not None
        batches = np.empty((len(extents), BATCH_NUMBERS), np.int64)
        batches[:, :2] = np.array(extents, np.int64).reshape(-1, 2)
        batches[:, 2] = self._counts
        for column, field in enumerate(
            ("base_offset", "last_offset_delta", "base_timestamp", "attributes", "max_timestamp"), 3
        ):
            batches[:, column] = self._batch_headers[field]
        batches[:, 6] &= LOG_APPEND_TIME_BIT
        numbers = np.empty((FIELDS, self.count), np.int64)
        sound = native.compiled.read_fields(self._flat, batches, numbers)
        if sound < len(extents):
            raise self._corrupt(sound)
        self._keys, self._key_sizes, self._values, self._value_sizes = numbers[:4]
        positions, self._header_counts, ends, self.offsets, self._timestamps = numbers[4:]
        self._require(self._read_headers(positions, ends) == ends)

    def _varints(self, positions: _Integers) -> tuple[_Integers, _Integers]:
        """Read a number of each record; return the numbers and where each ends."""
        try:
            return self._numbers.read(positions)
        except NoVarint as missing:
            raise self._corrupt(self._batch_of(missing.index)) from None

    def _skip(self, positions: _Integers, sizes: _Integers, ends: _Integers) -> _Integers:
        """Return where nullable fields end that are inside their records."""
        self._require((sizes >= -1) & (sizes <= ends - positions))
        return positions + np.maximum(sizes, 0)

    def _read_headers(self, positions: _Integers, ends: _Integers) -> _Integers:
        """Read the headers of the records that have any, one by one; return where they end."""
        positions = positions.copy()
        self._headers = []
        for index in np.flatnonzero(self._header_counts).tolist():
            try:
                first = int(positions[index])
                encoded = bytes(self._flat[first : int(ends[index])])
                headers, size = read_headers(
                    encoded, 0, len(encoded), int(self._header_counts[index])
                )
                positions[index] = first + size
            except (IndexError, Malformed):
                raise self._corrupt(self._batch_of(index)) from None
            self._headers.append(headers)
        return positions

    def _absolute_offsets(self, deltas: _Integers) -> _Integers:
        """Return offsets that rise within each batch and stay inside it.

        In a batch without gaps that leaves one possibility, so it is not a case of its own.
        """
        self._require((deltas >= 0) & (deltas <= self._repeated("last_offset_delta")))
        is_in_order = np.ones(self.count, np.bool_)
        is_in_order[1:] = deltas[1:] > deltas[:-1]
        is_in_order[self._ends[self._ends < self.count]] = True  # the first of a batch
        self._require(is_in_order)
        return self._repeated("base_offset") + deltas

    def _absolute_timestamps(self, deltas: _Integers) -> _Integers:
        base = self._repeated("base_timestamp")
        if self.has_log_append_time:
            is_fixed = self._is_log_append_time
            base = np.where(is_fixed, self._repeated("max_timestamp"), base)
            deltas = np.where(is_fixed, 0, deltas)
        timestamps = base + deltas
        # A sum overflowed if and only if its sign differs from that of both its terms.
        self._require(((base ^ timestamps) & (deltas ^ timestamps)) >= 0)
        return timestamps

    def _batch_of(self, record: int) -> int:
        """Return the index of the batch that a record is in."""
        return int(np.searchsorted(self._ends, record, side="right"))

    def _constants(self, field: str) -> _Integers:
        """Return a header field of each batch."""
        found: _Integers = self._batch_headers[field].astype(np.int64)
        return found

    def _repeated(self, field: str) -> _Integers:
        """Return a header field of each record's batch."""
        return np.repeat(self._constants(field), self._counts)

    def _require(self, is_sound: _Flags) -> None:
        if not is_sound.all():
            raise self._corrupt(self._batch_of(int(is_sound.argmin())))

    def _corrupt(self, batch: int) -> CorruptBatch:
        """The first fault up to this batch. A batch before it may have another, not met yet."""
        positions = self._positions[: batch + 1].tolist()
        try:
            for position in positions:
                decode_records(self._source, position, check_crc=False)
        except CorruptBatch as corrupt:
            return corrupt
        return CorruptBatch("the records contradict each other", positions[-1], Fault.PAYLOAD)


def _batch_headers(buf: memoryview, positions: _Integers) -> npt.NDArray[np.void]:
    """The headers of the batches that begin at these positions, copied."""
    return items(buf, HEADER_SIZE)[positions].view(_BATCH_HEADER)
