"""Zigzag varints: how every number inside a record is written.

Owns the tables that turn encoding into a lookup. Source: Kafka protocol guide, "Varint" and
"Varlong" (Protocol Buffers' sint32 and sint64).

    n      0    -1    1    -2   ...  63   -64     64        8191
    bytes  00   01    02   03        7e    7f    80 01     fe 7f
"""

from collections.abc import Sequence
from typing import Final

TABLE_SIZE: Final = 8192
"""Every number from here on takes three bytes or more, and is rare as a length or a delta."""
VARINT_BYTES_MAX: Final = 10
"""Of a number of 64 bits."""


def varint(number: int) -> bytes:
    """Encode a signed 64-bit number in one to ten bytes."""
    return _ENCODED[number] if 0 <= number < TABLE_SIZE else _encode(number)


def _encode(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class VarintTable:
    """The numbers below `TABLE_SIZE`, each encoded between two constants, ready to be looked up.

    Negative numbers have no place in it: the caller knows that there are none.
    """

    __slots__ = ("_before", "_behind", "_encoded")

    def __init__(self, before: bytes = b"", behind: bytes = b"") -> None:
        self._before = before
        self._behind = behind
        self._encoded = [before + encoded + behind for encoded in _ENCODED]

    def lookup(self, numbers: Sequence[int]) -> list[bytes]:
        """Encode a column of numbers."""
        table = self._encoded
        try:
            return [table[number] for number in numbers]
        except IndexError:
            return [
                table[number] if number < TABLE_SIZE else self._wrap(number) for number in numbers
            ]

    def row(self, end: int, first: int = 0) -> list[bytes]:
        """Encode `first, first + 1, ... end - 1`."""
        row = self._encoded[first:end]
        row.extend(map(self._wrap, range(max(first, TABLE_SIZE), end)))
        return row

    def _wrap(self, number: int) -> bytes:
        return self._before + _encode(number) + self._behind


_ENCODED: Final = [_encode(number) for number in range(TABLE_SIZE)]
VARINTS: Final = VarintTable()

NULL: Final = varint(-1)
"""The length of a null key or value."""

OFFSET_DELTA_WIDTHS: Final = ((1, 0, 64), (2, 64, 8192), (3, 8192, 1 << 20), (4, 1 << 20, 1 << 27))
"""`(width, first, end)`: the numbers in `[first, end)` take `width` bytes."""
