"""Unsigned varints of up to 32 bits: the lengths and tags of flexible messages (KIP-482).

Seven bits in each byte, the least first; the highest bit of a byte says that another follows.
"""

from __future__ import annotations

UVARINT_BYTES_MAX = 5
_ONE_BYTE = 0x7F
_MORE = 0x80
_LAST_BYTE_MAX = 0x0F
_SMALL = tuple(bytes([value]) for value in range(_MORE))


def uvarint(value: int) -> bytes:
    """The bytes of a value. Raises `ValueError` for one that has more than 32 bits."""
    if 0 <= value < _MORE:
        return _SMALL[value]
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} is no unsigned number of 32 bits")
    encoded = bytearray()
    while value > _ONE_BYTE:
        encoded.append(value & _ONE_BYTE | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The value at a position, and the position behind it.

    Raises `IndexError` where the data ends before it does, `ValueError` for more than 32 bits.
    """
    value = 0
    for index in range(UVARINT_BYTES_MAX):
        byte = data[position + index]
        value |= (byte & _ONE_BYTE) << 7 * index
        if byte < _MORE:
            if index == UVARINT_BYTES_MAX - 1 and byte > _LAST_BYTE_MAX:
                break
            return value, position + index + 1
    raise ValueError("an unsigned varint of more than 32 bits")
