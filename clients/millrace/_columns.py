"""What users give as keys, values and headers, made into what can be encoded.

Owns the check of types: whatever is wrong is refused before it is in a batch with others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millrace_protocol.records import Headers

_PLAIN = {bytes, type(None)}


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


def pick(
    indices: Sequence[int],
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
    timestamps_ms: Sequence[int] | int,
) -> tuple[
    Sequence[bytes | None] | None,
    Sequence[bytes | None],
    Sequence[Headers] | None,
    Sequence[int] | int,
]:
    """The rows at `indices` of each column."""
    return (
        None if keys is None else [keys[index] for index in indices],
        [values[index] for index in indices],
        None if headers is None else [headers[index] for index in indices],
        timestamps_ms
        if isinstance(timestamps_ms, int)
        else [timestamps_ms[index] for index in indices],
    )
