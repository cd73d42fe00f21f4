"""Where the records of uncompressed batches begin.

Owns the chain of lengths, each of which says where the next one is; nothing else of a record is
looked at. Imports numpy.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from millrace_protocol.records.fields import Malformed, read_varint
from millrace_protocol.records.header import ReadBuffer
from millrace_protocol.records.varint import VARINT_BYTES_MAX

RUN_MIN: Final = 16
"""Records of equal size in a row that are worth looking for: what looking costs, about."""
PAUSE_FIRST: Final = 64
PAUSE_MAX: Final = 1 << 20


# Why runs. A chain cannot be followed by numpy, and in Python a link costs some 60 ns. But where a
# record and the bytes one record further on begin alike, a record of the same length begins there:
# so every n-th byte tells all records of a run. Records of a fixed size form a
# few runs in each batch, for their numbers grow from one byte to two and three. Where sizes differ,
# looking is given up for twice as many records each time, across batches.
class RecordStarts:
    """The positions of the records of one batch after the other, in one buffer."""

    def __init__(self, flat: ReadBuffer) -> None:
        self._flat = memoryview(flat)
        self._parts: list[npt.NDArray[np.int64]] = []
        self._singles: list[int] = []
        self._pause = PAUSE_FIRST
        self._singles_due = 0

    def follow(self, position: int, end: int, count: int) -> None:
        """Adds `count` records that together fill `[position, end)`.

        A sign of a length is not looked at when its record is followed by one of another size.
        Raises `Malformed` or `IndexError` when they do not fill it.
        """
        first, records = position, b""
        while count:
            if self._singles_due or count < RUN_MIN:
                # Of bytes, single ones are had in half the time.
                records = records or bytes(self._flat[first:end])
                size = min(self._singles_due or count, count)
                position = self._follow_singly(records, first, position, size)
                self._singles_due -= min(size, self._singles_due)
            else:
                step, size = self._run(position, end, count)
                self._add(np.arange(size, dtype=np.int64) * step + position)
                position += size * step
                if size < RUN_MIN:
                    self._singles_due = self._pause
                    self._pause = min(2 * self._pause, PAUSE_MAX)
                else:
                    self._pause = PAUSE_FIRST
            count -= size
        if position != end:
            raise Malformed("ends elsewhere than its batch")

    def positions(self) -> npt.NDArray[np.int64]:
        """All that were added, in their order."""
        self._add(np.empty(0, np.int64))
        return np.concatenate(self._parts)

    def _add(self, part: npt.NDArray[np.int64]) -> None:
        if self._singles:
            self._parts.append(np.array(self._singles, np.int64))
            self._singles = []
        self._parts.append(part)

    def _follow_singly(self, records: bytes, first: int, position: int, count: int) -> int:
        """Adds records and returns where the last one ends; `records` begin at `first`."""
        append = self._singles.append
        position -= first
        for _ in range(count):
            append(first + position)
            length = records[position]
            if length < 128:
                position += 1 + (length >> 1)
                continue
            second = records[position + 1]
            if second < 128:
                position += 2 + ((length - 128 + (second << 7)) >> 1)
            else:
                size, position = read_varint(records, position)
                position += size
        return first + position

    def _run(self, position: int, end: int, count: int) -> tuple[int, int]:
        """The size of the first record, and how many from there on have it; at least one."""
        length, width = read_varint(bytes(self._flat[position : position + VARINT_BYTES_MAX]), 0)
        if length <= 0:
            raise Malformed("has no bytes")
        step = width + length
        for index in range(position, position + width):
            column = bytes(self._flat[index : min(end, index + step * count) : step])
            count = len(column) - len(column.lstrip(column[:1]))
        return step, count
