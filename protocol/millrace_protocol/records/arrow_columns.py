"""Arrow columns of the keys, values and headers of records that lie in one buffer.

Owns how bytes of the buffer become the data of an array. Refuses to know records. Imports numpy
and pyarrow.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace_protocol.records import native
from millrace_protocol.records.encode import Headers

_Integers = npt.NDArray[np.int64]

HEADER_TYPE: Final = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
)

_NO_HEADERS: Final = pa.array([], HEADER_TYPE)


def binary_column(flat: memoryview, positions: _Integers, sizes: _Integers) -> pa.BinaryArray:
    """Build a binary column from bytes in the buffer `flat`; a size of -1 is null.

    The buffer becomes the data of an array whose elements are, in turn, a wanted field and
    the gap behind it; taking every other one copies the wanted bytes once, in C++.
    """
    count = len(positions)
    if not count:
        return pa.nulls(0, pa.binary())
    smallest, largest = int(sizes.min()), int(sizes.max())
    if largest < 0:
        return pa.nulls(count, pa.binary())
    if native.compiled is not None:
        return _gathered(flat, positions, sizes, has_nulls=smallest < 0)
    if smallest == largest > 0:
        return _binary_of_one_size(flat, positions, largest)
    is_null = sizes < 0
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = positions
    bounds[1::2] = positions + np.maximum(sizes, 0)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(flat)]
    fields_and_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    every_other = np.arange(0, 2 * count, 2, dtype=np.int32)
    return fields_and_gaps.take(pa.array(every_other, mask=is_null if smallest < 0 else None))


def _gathered(
    flat: memoryview, positions: _Integers, sizes: _Integers, *, has_nulls: bool
) -> pa.BinaryArray:
    """Build the column by the compiled copier."""
    assert native.compiled is not None
    count = len(positions)
    filled = np.maximum(sizes, 0) if has_nulls else sizes
    bounds = np.empty(count + 1, np.int32)
    data = np.empty(int(filled.sum()), np.uint8)
    native.compiled.gather(flat, positions, sizes, bounds, data)
    validity = pa.py_buffer(np.packbits(sizes >= 0, bitorder="little")) if has_nulls else None
    return pa.Array.from_buffers(
        pa.binary(), count, [validity, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _binary_of_one_size(flat: memoryview, positions: _Integers, size: int) -> pa.BinaryArray:
    """Build the column as items of `size` bytes, which NumPy copies in half the time."""
    count = len(positions)
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(size)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(items(flat, size)[positions])]
    return pa.Array.from_buffers(pa.binary(), count, buffers, null_count=0)


def header_column(counts: _Integers, lists: Sequence[Headers]) -> pa.ListArray:
    """Build the headers column of records that have `counts` headers.

    `lists` has the headers of those that have any.
    """
    if not lists:
        no_bounds = pa.py_buffer(np.zeros(len(counts) + 1, np.int32))
        return pa.Array.from_buffers(
            pa.list_(HEADER_TYPE),
            len(counts),
            [None, no_bounds],
            null_count=0,
            children=[_NO_HEADERS],
        )
    ends = np.cumsum(counts)
    names = [name for headers in lists for name, _ in headers]
    values = [value for headers in lists for _, value in headers]
    structs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())],
        fields=list(HEADER_TYPE),
    )
    bounds = pa.array(np.concatenate(([0], ends)).astype(np.int32))
    return pa.ListArray.from_arrays(bounds, structs)


def items(buf: memoryview, size: int) -> npt.NDArray[np.void]:
    """Every `size` bytes of a buffer as one item, wherever they begin; no copy."""
    count = max(len(buf) - size + 1, 0)
    return np.ndarray((count,), np.dtype((np.void, size)), buf, strides=(1,))
