"""Arrow columns to a batch, without a Python object per record.

Owns the vectorised writing of records; the layout is drawn in `encode`, and so are the batches
that this leaves to it. Imports numpy and pyarrow (the `arrow` extra), so nothing else in this
package imports it.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace_protocol.records.compression import Codec
from millrace_protocol.records.encode import (
    KEPT_COUNT_MAX,
    finish_batch,
    pieces_between,
)
from millrace_protocol.records.header import HEADER_SIZE, RECORD_COUNT_MAX
from millrace_protocol.records.varint import OFFSET_DELTA_WIDTHS, TABLE_SIZE

_Bytes = npt.NDArray[np.uint8]
_Cells = npt.NDArray[Any]
_Integers = npt.NDArray[np.int64]
_Items = npt.NDArray[np.void]

_END: Final = pa.scalar(b"\x00", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())


def encode_arrow(
    values: pa.BinaryArray,
    *,
    timestamp_ms: int,
    keys: pa.BinaryArray | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Encode binary Arrow columns as one sealed batch: the bytes that `encode_batch` makes.

    Raises `ValueError` as that does.
    """
    count = len(values)
    if keys is not None and len(keys) != count:
        raise ValueError(f"{len(keys)} keys for {count} values: columns must be equal")
    if not 0 < count <= RECORD_COUNT_MAX:
        raise ValueError(f"{count} records: a batch holds from 1 to {RECORD_COUNT_MAX}")
    length = _common_length(values) if keys is None and count <= KEPT_COUNT_MAX else None
    batch = _joined(values, keys) if length is None else _interleaved(values, length)
    return finish_batch(
        batch,
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )


def value_bounds(column: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Where each item of a column begins in its data, and where the last one ends: a view.

    Items lie one behind the other; a null may have bytes there too.
    """
    bounds = column.buffers()[1]
    if bounds is None:
        return np.zeros(len(column) + 1, np.int32)
    return np.frombuffer(bounds, np.int32, len(column) + 1, 4 * column.offset)


def _common_length(values: pa.BinaryArray) -> int | None:
    """The length of every value; None if they differ, and if one is null or empty."""
    if values.null_count:
        return None
    bounds = value_bounds(values)
    length = int(bounds[1] - bounds[0])
    if length == 0 or bounds[-1] - bounds[0] != length * len(values):
        return None
    return length if bool((bounds[1:] - bounds[:-1] == length).all()) else None


# Why two ways. The values of sensors and fixed layouts are of one length. Then what stands between
# two of them is so too, as far as offset deltas are of one width, and a batch is a table of two
# columns of fixed width, which NumPy copies as it does any other: 6 ns a record of 100 bytes. For
# all others Arrow joins pieces of any length, at some 16 ns a piece.
def _interleaved(values: pa.BinaryArray, length: int) -> bytearray:
    """Return room for a header, and behind it the records of values of one length."""
    count = len(values)
    first_byte = int(value_bounds(values)[0])
    data: _Items = np.frombuffer(values.buffers()[2], np.uint8, count * length, first_byte).view(
        f"V{length}"
    )
    runs = _runs_between(length, 1 << (count - 1).bit_length())
    sizes = [
        (min(end, count) - first) * (between.itemsize + length)
        for first, end, between in runs
        if first < count
    ]
    # The first byte of what stands before a value ends the record before it, and that of the first
    # value the header, which is written later.
    batch = bytearray(HEADER_SIZE - 1 + sum(sizes) + 1)
    position = HEADER_SIZE - 1
    for size, (first, end, between) in zip(sizes, runs, strict=False):
        rows = slice(first, min(end, count))
        table = np.frombuffer(batch, _table(between.itemsize, length), rows.stop - first, position)
        table["between"] = between[: rows.stop - first]
        table["value"] = data[rows]
        position += size
    return batch


@lru_cache(maxsize=8)
def _runs_between(length: int, count: int) -> list[tuple[int, int, _Items]]:
    """`(first, end, pieces)`: what stands before the values `[first, end)` of `count` of a length.

    The pieces of a run are of one width.
    """
    pieces = pieces_between(length, count)
    runs = []
    for _, first, end in OFFSET_DELTA_WIDTHS:
        end = min(end, count)
        width = len(pieces[first])
        runs.append((first, end, np.frombuffer(b"".join(pieces[first:end]), f"V{width}")))
        if end == count:
            break
    return runs


@lru_cache(maxsize=32)
def _table(width: int, length: int) -> np.dtype[Any]:
    return np.dtype([("between", f"V{width}"), ("value", f"V{length}")])


def _joined(values: pa.BinaryArray, keys: pa.BinaryArray | None) -> bytearray:
    """Return room for a header, and behind it the records of any values and keys."""
    count = len(values)
    offsets = _varints(np.arange(count))
    value_sizes = _sizes(values)
    value_lengths = _varints(value_sizes)
    key_sizes = np.full(count, -1) if keys is None else _sizes(keys)
    key_lengths = _varints(key_sizes)
    # Of attributes and time delta at the beginning, and of the zero at the end.
    sizes = 3 + offsets.widths + key_lengths.widths + value_lengths.widths
    sizes += np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0)
    heads = [_varints(sizes), _ATTRIBUTES_AND_TIME, offsets, key_lengths]
    if keys is None:
        pieces = [_column([*heads, value_lengths], count), _filled(values)]
    else:
        pieces = [
            _column(heads, count),
            _filled(keys),
            _column([value_lengths], count),
            _filled(values),
        ]
    joined = pc.binary_join_element_wise(*pieces, _END, _NOTHING)
    bounds = value_bounds(joined)
    batch = bytearray(HEADER_SIZE + int(bounds[-1] - bounds[0]))
    memoryview(batch)[HEADER_SIZE:] = memoryview(joined.buffers()[2]).cast("B")[
        bounds[0] : bounds[-1]
    ]
    return batch


class _Field(NamedTuple):
    """A piece of each record: of the bytes of its cell those that are used.

    Cells are of one width and any type, so that NumPy moves each in one step.
    """

    cells: _Cells
    is_used: _Cells
    widths: _Integers

    @classmethod
    def of(cls, rows: _Bytes, widths: _Integers) -> "_Field":
        """A field whose pieces are the first bytes of their rows."""
        width_max = rows.shape[1]
        is_used = np.arange(width_max) < widths[:, np.newaxis]
        cell = f"u{width_max}" if width_max in (1, 2) else f"V{width_max}"
        return cls(rows.view(cell).ravel(), is_used.view(cell).ravel(), widths)


def _varints(numbers: _Integers) -> _Field:
    """Encode numbers from -1 up, zigzag."""
    largest = int(numbers.max())
    if largest >= TABLE_SIZE:
        return _Field.of(*_encoded(numbers))
    # -1 is at the end of the tables.
    table = _ONE_BYTE if largest < _ONE_BYTE_END else _TWO_BYTES
    return _Field(*(column.take(numbers, mode="wrap") for column in table))


def _encoded(numbers: _Integers) -> tuple[_Bytes, _Integers]:
    """Varints in rows as wide as the widest takes, and how many bytes each takes."""
    rest = (numbers << 1) ^ (numbers >> 63)
    width_max = max(1, -(-int(rest.max()).bit_length() // 7))
    rows = np.empty((len(numbers), width_max), np.uint8)
    widths = np.ones(len(numbers), np.int64)
    for index in range(width_max):
        is_longer = rest > 0x7F
        rows[:, index] = rest & 0x7F | is_longer.astype(np.int64) << 7
        widths += is_longer
        rest >>= 7
    return rows, widths


_ONE_BYTE_END: Final = OFFSET_DELTA_WIDTHS[0][2]
_ONE_BYTE: Final = _Field.of(*_encoded(np.append(np.arange(_ONE_BYTE_END), -1)))
_TWO_BYTES: Final = _Field.of(*_encoded(np.append(np.arange(TABLE_SIZE), -1)))
_ATTRIBUTES_AND_TIME: Final = _Field.of(np.zeros((1, 2), np.uint8), np.array([2]))


def _column(fields: list[_Field], count: int) -> pa.BinaryArray:
    """One item for each record: its pieces of the fields, one behind the other."""
    layout = np.dtype([(f"{index}", field.cells.dtype) for index, field in enumerate(fields)])
    table, is_used = np.empty(count, layout), np.empty(count, layout)
    widths = np.zeros(count, np.int64)
    for index, field in enumerate(fields):
        table[f"{index}"], is_used[f"{index}"] = field.cells, field.is_used
        widths += field.widths
    bounds = np.zeros(count + 1, np.int32)
    np.cumsum(widths, out=bounds[1:])
    data = table.view(np.uint8)[is_used.view(np.bool_)]
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _sizes(column: pa.BinaryArray) -> _Integers:
    """The length of each item, -1 of a null."""
    bounds = value_bounds(column).astype(np.int64)
    sizes: _Integers = bounds[1:] - bounds[:-1]
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return sizes


def _filled(column: pa.BinaryArray) -> pa.BinaryArray:
    """The column with nothing in place of null."""
    return column.fill_null(b"") if column.null_count else column
