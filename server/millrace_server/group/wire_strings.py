"""Strings and bytes with a length before them, as the records of the offsets topic hold them.

Owns reading past the end of what is there, which raises `ValueError` or `struct.error` and never
returns less. Knows no record.
"""

from __future__ import annotations

import struct

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


def pack_string(text: str | None) -> bytes:
    """Length i16 and UTF-8, -1 for None; `struct.error` above 32,767 bytes."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _I16.pack(len(data)) + data


def pack_bytes(data: bytes) -> bytes:
    """Length i32 and the bytes."""
    return _I32.pack(len(data)) + data


class Cursor:
    """A position in bytes that each read moves on."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def i32(self) -> int:
        (value,) = _I32.unpack_from(self._data, self._position)
        self._position += _I32.size
        return int(value)

    def i64(self) -> int:
        (value,) = _I64.unpack_from(self._data, self._position)
        self._position += _I64.size
        return int(value)

    def nullable_string(self) -> str | None:
        (length,) = _I16.unpack_from(self._data, self._position)
        self._position += _I16.size
        return None if length == -1 else self._take(length).decode()

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError("a null string where there must be one")
        return text

    def sized_bytes(self) -> bytes:
        return self._take(self.i32())

    def end(self) -> None:
        """Raises `ValueError` unless everything has been read."""
        if self._position != len(self._data):
            raise ValueError(f"{len(self._data) - self._position} bytes after the end")

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise ValueError(f"a length of {length} at byte {self._position}, which is too long")
        data = self._data[self._position : end]
        self._position = end
        return data
