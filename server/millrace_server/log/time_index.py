"""Where times begin: a sparse map from timestamps to offsets in one segment.

Owns the `.timeindex` format and the search in it. Refuses to know files and records. An entry
says: *everything before the batch at this relative offset has a timestamp of at most this*. There
is one for each entry of the offset index, even when the maximum has not grown, so a search scans
no more than one index interval however disordered the timestamps are. A closed segment has one
entry more, for its end: the largest timestamp of the segment.

    byte  0                                  8                       12
          +----------------------------------+-----------------------+
          | max timestamp before, i64 ms     | relative offset, i32  |   big-endian
          +----------------------------------+-----------------------+
            never decreasing                   strictly increasing
"""

from __future__ import annotations

import operator
import struct
from array import array
from bisect import bisect_left
from typing import Final

_ENTRY: Final = struct.Struct(">qi")
ENTRY_SIZE: Final = _ENTRY.size

NO_TIMESTAMP: Final = -1
"""The timestamp of records that have none, and the maximum of no records."""


class TimeIndex:
    """The entries of one segment, in memory."""

    __slots__ = ("_max_timestamps", "_relative_offsets")

    def __init__(self) -> None:
        self._max_timestamps = array("q")
        self._relative_offsets = array("i")

    def __len__(self) -> int:
        return len(self._max_timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """The last entry as (max timestamp, relative offset); (-1, 0) if there is none."""
        if not self._max_timestamps:
            return NO_TIMESTAMP, 0
        return self._max_timestamps[-1], self._relative_offsets[-1]

    def append(self, max_timestamp: int, relative_offset: int) -> None:
        """Notes that all records before `relative_offset` have at most `max_timestamp`."""
        self._max_timestamps.append(max_timestamp)
        self._relative_offsets.append(relative_offset)

    def floor_timestamp(self, timestamp_ms: int) -> int:
        """Returns a relative offset before which every record is older than `timestamp_ms`.

        It is the greatest that the index knows, and 0 if it knows none.
        """
        i = bisect_left(self._max_timestamps, timestamp_ms) - 1
        return self._relative_offsets[i] if i >= 0 else 0

    def floor_offset(self, relative_offset: int) -> tuple[int, int]:
        """Returns the last entry below an offset as (max timestamp, relative offset)."""
        i = bisect_left(self._relative_offsets, relative_offset) - 1
        if i < 0:
            return NO_TIMESTAMP, 0
        return self._max_timestamps[i], self._relative_offsets[i]

    def encode(self, first: int = 0) -> bytes:
        """Returns the entries from number `first` on as they stand in the file."""
        pack = _ENTRY.pack
        return b"".join(map(pack, self._max_timestamps[first:], self._relative_offsets[first:]))

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex | None:
        """Reads a file's content; None if it cannot be a time index."""
        if len(data) % ENTRY_SIZE:
            return None
        index = cls()
        for max_timestamp, relative_offset in _ENTRY.iter_unpack(data):
            index.append(max_timestamp, relative_offset)
        times, offsets = index._max_timestamps, index._relative_offsets
        if not all(map(operator.le, times, times[1:])):
            return None
        if not all(map(operator.lt, offsets, offsets[1:])) or (offsets and offsets[0] <= 0):
            return None
        return index
