"""Where the records of uncompressed batches begin.

Owns the chain of lengths, each of which leads to the next; nothing else of a record is
looked at. Imports numpy.
"""

from collections.abc import Sequence
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
ALIKE_FIRST: Final = 64
"""Batches that are compared at once with the one before them; twice as many when all are alike."""
ALIKE_MIN: Final = 8
"""The same behind a few that were alike: not many more than there were of those."""
ALIKE_PAUSE_FIRST: Final = 4
"""Batches that are not compared after one as large that was not alike; then twice as many."""


class Misplaced(Exception):
    """The records of a batch do not fill it; `index` is the batch's among those followed."""

    def __init__(self, index: int) -> None:
        super().__init__(f"the records of batch {index} do not fill it")
        self.index = index


# Why runs. A chain cannot be followed by numpy, and in Python a link costs some 60 ns. But where a
# record and the bytes one record further on begin alike, a record of the same length begins there:
# so every n-th byte tells all records of a run. Records of a fixed size form a
# few runs in each batch, for their numbers grow from one byte to two and three. Where sizes differ,
# looking is given up for twice as many records each time, across batches.
#
# A batch of the same size and count as the one before it often has its records in the same places.
# It has them there if the same lengths stand there, and that is one comparison for many batches.
class RecordStarts:
    """The positions of the records of one batch after the other, in one buffer."""

    def __init__(self, flat: ReadBuffer) -> None:
        self._flat = memoryview(flat)
        self._parts: list[npt.NDArray[np.int64]] = []
        self._singles: list[int] = []
        self._pause = PAUSE_FIRST
        self._singles_due = 0
        # Every four bytes as one number, wherever they begin.
        self._words: npt.NDArray[np.uint32] = np.ndarray(
            max(len(self._flat) - 3, 0), "<u4", self._flat, strides=(1,)
        )
        self._alike_max = ALIKE_FIRST
        self._alike_pause = ALIKE_PAUSE_FIRST
        self._alike_due = 0

    def follow_batches(self, extents: Sequence[tuple[int, int]], counts: Sequence[int]) -> None:
        """Adds the records of batches: of each, `count` that together fill `[position, end)`.

        A sign is not looked at, as in `follow`. Raises `Misplaced` for the first batch whose
        records do not fill it.
        """
        index = 0
        while index < len(extents):
            position, end = extents[index]
            count = counts[index]
            parts = len(self._parts)
            try:
                self.follow(position, end, count)
            except (IndexError, Malformed):
                raise Misplaced(index) from None
            index += 1
            alike = index
            shape = end - position, count
            while alike < min(len(extents), index + self._alike_max) and shape == (
                extents[alike][1] - extents[alike][0],
                counts[alike],
            ):
                alike += 1
            if alike == index or count < RUN_MIN:
                continue
            if self._alike_due:
                self._alike_due -= 1
                continue
            self._flush()
            index += self._repeat(
                np.concatenate(self._parts[parts:])[-count:],
                np.array([first for first, _ in extents[index - 1 : alike]], np.int64),
            )

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

    def _repeat(self, records: npt.NDArray[np.int64], batches: npt.NDArray[np.int64]) -> int:
        """Adds those batches behind the first that are like it; returns how many they are.

        `records` are those of the first of `batches`; all have the same size and count.
        """
        if records[-1] >= len(self._words):
            return 0
        tops = ~self._words[records] & np.uint32(0x80808080)
        ends = tops & (~tops + np.uint32(1))
        lengths = ends | (ends - np.uint32(1))
        expected = self._words[records] & lengths
        places = records + (batches[1:] - batches[0])[:, np.newaxis]
        if places[-1, -1] >= len(self._words) or not ends.all():
            return 0
        is_alike = ((self._words[places] & lengths) == expected).all(axis=1)
        count = len(is_alike) if is_alike.all() else int(is_alike.argmin())
        self._parts.append(places[:count].reshape(-1))
        if count == len(is_alike):
            self._alike_max *= 2
        else:
            self._alike_max = max(ALIKE_MIN, 2 * count)
        if count:
            self._alike_pause = ALIKE_PAUSE_FIRST
        else:
            self._alike_due = self._alike_pause
            self._alike_pause = min(2 * self._alike_pause, PAUSE_MAX)
        return count

    def _add(self, part: npt.NDArray[np.int64]) -> None:
        self._flush()
        self._parts.append(part)

    def _flush(self) -> None:
        if self._singles:
            self._parts.append(np.array(self._singles, np.int64))
            self._singles = []

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
