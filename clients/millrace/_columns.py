"""What users give as keys, values and headers, made into what can be encoded.

Owns the check of types, whatever is wrong is refused before it is in a batch with others, and the
columns of one `send_many`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from millrace_protocol.records import RECORD_OVERHEAD_BYTES, Headers, record_size_max

_PLAIN = {bytes, type(None)}


@dataclass(frozen=True, slots=True)
class Columns:
    """Records by column, each as long as `values`, or None where no record has any.

    `timestamps_ms` is one for all, or one for each.
    """

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    timestamps_ms: Sequence[int] | int

    def size_bytes(self, start: int, end: int) -> int:
        """An upper bound of what the records in `[start, end)` take."""
        values, keys = self.values[start:end], self.keys
        if self.headers is not None:
            some_keys = repeat(None) if keys is None else keys[start:end]
            return sum(map(record_size_max, some_keys, values, self.headers[start:end]))
        size = RECORD_OVERHEAD_BYTES * (end - start) + _bytes_in(values)
        return size if keys is None else size + _bytes_in(keys[start:end])

    def fitting(self, start: int, count: int, room_bytes: int) -> tuple[int, int]:
        """How many records from `start` on, at most `count`, and their size, fit into the room.

        Not always as many as would fit. One is the least, whether it fits or not.
        """
        size = self.size_bytes(start, start + count)
        while size > room_bytes and count > 1:
            count = max(1, min(count // 2, count * room_bytes // size))
            size = self.size_bytes(start, start + count)
        return count, size

    def pick(self, rows: Sequence[int]) -> Columns:
        """The rows given, in that order."""
        keys, headers, timestamps_ms = self.keys, self.headers, self.timestamps_ms
        return Columns(
            [self.values[row] for row in rows],
            None if keys is None else [keys[row] for row in rows],
            None if headers is None else [headers[row] for row in rows],
            timestamps_ms
            if isinstance(timestamps_ms, int)
            else [timestamps_ms[row] for row in rows],
        )

    def part(self, start: int, end: int) -> Columns:
        """A copy of the rows in `[start, end)`."""
        keys, headers, timestamps_ms = self.keys, self.headers, self.timestamps_ms
        return Columns(
            self.values[start:end],
            None if keys is None else keys[start:end],
            None if headers is None else headers[start:end],
            timestamps_ms if isinstance(timestamps_ms, int) else timestamps_ms[start:end],
        )


def _bytes_in(column: Sequence[bytes | None]) -> int:
    try:
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:
        return sum(len(item) for item in column if item is not None)


def as_bytes(name: str, item: object) -> bytes | None:
    """A key or value as it is sent; a copy of what could change. Raises `TypeError`."""
    if item is None or type(item) is bytes:
        return item
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    raise TypeError(
        f"{name}: must be bytes or None, not {type(item).__name__}; give the producer a "
        f"{name}_serializer, or encode it"
    )


def bytes_column(
    name: str, items: Sequence[Any], serializer: Callable[[Any], bytes] | None
) -> list[bytes | None]:
    """A column of keys or values as it is sent. Raises `TypeError`."""
    if serializer is not None:
        items = [None if item is None else serializer(item) for item in items]
    column = items if isinstance(items, list) else list(items)
    if {*map(type, column)} <= _PLAIN:
        return column
    return [as_bytes(name, item) for item in column]


def checked_headers(headers: Headers) -> Headers:
    """Headers that can be encoded, as a value that does not change. Raises `TypeError`."""
    checked = tuple((name, value) for name, value in headers)
    for name, value in checked:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError(f"headers: pairs of str and bytes or None, not {name!r}: {value!r}")
    return checked
