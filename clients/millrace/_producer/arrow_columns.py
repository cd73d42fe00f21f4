"""Records by column where the columns are Arrow's, for callers that have no Python objects.

Owns the check of types, and how many rows a batch takes. Knows no producer. Imports numpy and
pyarrow (the `arrow` extra), so nothing imports it before it is needed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace._producer.columns import Columns, common_record_bytes
from millrace_protocol.records import RECORD_OVERHEAD_BYTES, Codec
from millrace_protocol.records.arrow_encode import encode_arrow, value_bounds


class ArrowColumns:
    """Values, and keys or None where no record has one, with one time for all.

    Arrow's arrays do not change, so nothing is copied until a batch is encoded.
    """

    __slots__ = ("_bounds", "keys", "timestamp_ms", "values")

    def __init__(
        self,
        values: pa.BinaryArray,
        keys: pa.BinaryArray | None,
        timestamp_ms: int,
        bounds: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """`bounds` is where each record begins, in bytes of `size_bytes`, and the last one ends."""
        self.values = values
        self.keys = keys
        self.timestamp_ms = timestamp_ms
        self._bounds = _bounds(values, keys) if bounds is None else bounds

    @classmethod
    def of(cls, values: pa.Array, keys: pa.Array | None, timestamp_ms: int) -> ArrowColumns:
        """Arrays of `binary`, or of `string` for its UTF-8. Raises `TypeError` and `ValueError`."""
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"keys: {len(keys)} for {len(values)} values")
        value_column, key_column = _binary("values", values), None
        if keys is not None:
            key_column = _binary("keys", keys)
            if key_column.null_count == len(key_column):
                key_column = None
        return cls(value_column, key_column, timestamp_ms)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size_bytes(self) -> int:
        """An upper bound of what the records take in a batch."""
        return int(self._bounds[-1] - self._bounds[0])

    def share_bytes(self, batch_bytes: int) -> int:
        """The bound of a batch, at most `batch_bytes`, by which all batches are about as large."""
        batches = max(1, -(-self.size_bytes // batch_bytes))
        largest = int((self._bounds[1:] - self._bounds[:-1]).max(initial=0))
        return min(batch_bytes, self.size_bytes // batches + largest)

    def fitting(self, start: int, room_bytes: int) -> tuple[int, int]:
        """How many records from `start` on, and their size, fit into the room: one at least."""
        bounds = self._bounds
        end = int(np.searchsorted(bounds, bounds[start] + room_bytes, side="right")) - 1
        count = max(1, end - start)
        return count, int(bounds[start + count] - bounds[start])

    def part(self, start: int, end: int) -> ArrowColumns:
        """The rows in `[start, end)`: a view."""
        keys = self.keys
        return ArrowColumns(
            self.values[start:end],
            None if keys is None else keys[start:end],
            self.timestamp_ms,
            self._bounds[start : end + 1],
        )

    def lists(self) -> Columns:
        """The same records with an object for each key and value."""
        values = _items(self.values)
        keys = None if self.keys is None else _items(self.keys)
        record_bytes = common_record_bytes(values, 0) if keys is None else None
        return Columns(values, keys, None, self.timestamp_ms, record_bytes)

    def encode(
        self, codec: Codec, *, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> bytearray:
        """All records as one sealed batch."""
        return encode_arrow(
            self.values,
            keys=self.keys,
            timestamp_ms=self.timestamp_ms,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )


def _binary(name: str, column: pa.Array) -> pa.BinaryArray:
    kind = getattr(column, "type", None)
    if kind in (pa.binary(), pa.string()) and isinstance(column, pa.Array):
        return column.cast(pa.binary())
    raise TypeError(
        f"{name}: must be an Arrow array of binary or string, not {kind or type(column).__name__}; "
        "cast it, or combine its chunks"
    )


def _bounds(values: pa.BinaryArray, keys: pa.BinaryArray | None) -> npt.NDArray[np.int64]:
    bounds = np.zeros(len(values) + 1, np.int64)
    sizes = bounds[1:]
    sizes += RECORD_OVERHEAD_BYTES
    for column in (values,) if keys is None else (values, keys):
        ends = value_bounds(column)
        lengths = ends[1:] - ends[:-1]
        if column.null_count:
            # There may be bytes behind a null, which are not sent.
            lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
        sizes += lengths
    np.cumsum(sizes, out=sizes)
    return bounds


def _items(column: pa.BinaryArray) -> list[bytes | None]:
    """The cells as Python's bytes and None, made in C++: some 20 ns each, and what malloc takes."""
    items: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return items
