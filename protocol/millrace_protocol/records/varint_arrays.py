"""Varints at many positions of a buffer, read together.

Owns the vectorised reading of a column of numbers. Refuses to know what the numbers mean. Imports
numpy.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from millrace_protocol.records.fields import Malformed, read_varint
from millrace_protocol.records.varint import VARINT_BYTES_MAX

_Integers = npt.NDArray[np.int64]


class NoVarint(Exception):
    """No number can be read at the position with this `index`."""

    def __init__(self, index: int) -> None:
        super().__init__(f"no varint at position {index}")
        self.index = index


class VarintArrays:
    """Reads arrays of varints from one buffer, which has to stay as it is."""

    def __init__(self, flat: memoryview) -> None:
        self._flat = flat
        self._bytes = np.frombuffer(flat, dtype=np.uint8)
        # Every four bytes as one number, wherever they begin.
        self._every_word: npt.NDArray[np.uint32] = np.ndarray(
            max(len(flat) - 3, 0), "<u4", flat, strides=(1,)
        )

    def read(self, positions: _Integers) -> tuple[_Integers, _Integers]:
        """Read a number at each position; return the numbers and where each ends.

        Raises `NoVarint` for the first position without one.

        Most columns have numbers of one byte, and nearly all have none of three. Where there are,
        four bytes are taken as one word, in which the lowest clear top bit of a byte says where the
        number ends. Still longer numbers are read one by one.
        """
        last = positions.max(initial=0)
        if last < len(self._bytes):
            firsts = self._bytes[positions]
            if firsts.max(initial=0) < 0x80:
                return _signed(firsts), positions + 1
            if last + 1 < len(self._bytes):
                goes_on = firsts >> np.uint8(7)
                following = positions + 1
                seconds = self._bytes[following]
                if not (goes_on & (seconds >> np.uint8(7))).any():
                    shorts = (seconds * goes_on).astype(np.uint16) << np.uint16(7)
                    shorts |= firsts & np.uint8(0x7F)
                    following += 1 if goes_on.all() else goes_on
                    return _signed(shorts), following
        words = self._words(positions)
        tops = ~words & np.uint32(0x80808080)
        end_bits = tops & (~tops + np.uint32(1))
        words &= end_bits - np.uint32(1)
        numbers = words & np.uint32(0x7F)
        widths = np.ones(len(words), np.uint8)
        for width in range(1, 4):
            group = np.uint32(0x7F << 7 * width)
            numbers |= (words >> np.uint32(width)) & group
            widths += end_bits > np.uint32(0x80 << 8 * (width - 1))
        found = _signed(numbers)
        following = positions + widths
        for row in np.flatnonzero(end_bits == 0).tolist():
            try:
                first = int(positions[row])
                encoded = bytes(self._flat[first : first + VARINT_BYTES_MAX])
                found[row], width = read_varint(encoded, 0)
                following[row] = first + width
            except (IndexError, Malformed):
                raise NoVarint(row) from None
        return found, following

    def _words(self, positions: _Integers) -> npt.NDArray[np.uint32]:
        """Return the four bytes at each position, zeros behind the end of the buffer."""
        last = len(self._bytes) - 4
        if positions.max(initial=0) <= last:
            words: npt.NDArray[np.uint32] = self._every_word[positions]
            return words
        is_inside = (positions < len(self._bytes)) & (last >= 0)
        if not is_inside.all():
            raise NoVarint(int(is_inside.argmin()))
        words = self._every_word[np.minimum(positions, last)]
        late = np.flatnonzero(positions > last)
        words[late] >>= (8 * (positions[late] - last)).astype(np.uint32)
        return words


def _signed(numbers: npt.NDArray[np.unsignedinteger[Any]]) -> _Integers:
    """Undo the zigzag: even numbers stand for 0, 1, 2, odd ones for -1, -2, -3."""
    if len(numbers) and numbers.min() == (largest := numbers.max()):
        number = int(largest)
        return np.full(len(numbers), (number >> 1) ^ -(number & 1), np.int64)
    signed = np.dtype(f"i{numbers.itemsize}")
    signs = -(numbers & 1).view(signed)
    found: _Integers = ((numbers >> 1).view(signed) ^ signs).astype(np.int64)
    return found
