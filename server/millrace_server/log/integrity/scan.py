"""Reading a segment batch by batch, and why the reading ended.

Owns the walk over bytes that may be torn, zero or wrong. Refuses to judge what it found:
`recovery` does, which knows what was durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from millrace_protocol.records import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    Fault,
    batch_extent,
    check_batch,
)
from millrace_server.environment.seams import File

_WINDOW_BYTES: Final = 1024 * 1024
_LENGTH_END: Final = 12


class Ending(Enum):
    """Why the scan of a segment ended."""

    WHOLE = "the file ends behind a whole batch"
    UNWRITTEN = "preallocated space, which reads as zeros"
    TORN = "the file ends inside a batch"
    BAD = "a batch fails its checks, and no whole batch follows"
    DAMAGED = "a batch fails its checks, and a whole batch follows"
    CONTINUED = "the next segment continues here; what this file still holds was never appended"
    MISSING = "what was written next is not there"


class BatchScan:
    """Iterates over the checked batches of `file` from `position` to `end_position`, once.

    `next_offset` is the offset that must come first. With `is_dense` every batch continues the
    one before; without, offsets may be missing in between, as after compaction. At the end
    `position` is behind the last good batch, and `ending` and `message` say what is there.
    """

    def __init__(
        self, file: File, position: int, end_position: int, *, next_offset: int, is_dense: bool
    ) -> None:
        self.position = position
        self.ending = Ending.WHOLE
        self.message = Ending.WHOLE.value
        self._file = file
        self._end_position = end_position
        self._next_offset = next_offset
        self._is_dense = is_dense
        self._window = b""
        self._window_position = position

    def __iter__(self) -> Iterator[BatchHeader]:
        while self.position < self._end_position:
            try:
                header = self._next()
            except CorruptBatch as fault:
                self.message = fault.message
                self._classify(fault)
                return
            if header is None:
                self.ending = Ending.UNWRITTEN
                self.message = Ending.UNWRITTEN.value
                return
            yield header
            self.position += header.size_bytes
            self._next_offset = header.next_offset

    def batch(self, header: BatchHeader) -> bytes:
        """Returns the bytes of the batch that the iteration is at."""
        at = self._at(self.position, header.size_bytes)
        return self._window[at : at + header.size_bytes]

    def is_rest_zero(self) -> bool:
        """Whether nothing but zeros lies between `position` and the end."""
        for position in range(self.position, self._end_position, _WINDOW_BYTES):
            size_bytes = min(_WINDOW_BYTES, self._end_position - position)
            if self._file.pread(size_bytes, position).strip(b"\0"):
                return False
        return True

    def _next(self) -> BatchHeader | None:
        """The batch at `position`; None if nothing was ever written there."""
        at = self._at(self.position, HEADER_SIZE)
        if len(self._window) - at >= _LENGTH_END:
            size_bytes = batch_extent(self._window, at)[1]
            if size_bytes == _LENGTH_END:
                return None
            at = self._at(self.position, size_bytes)
        elif not any(self._window[at:]):
            return None
        header = check_batch(self._window, at)
        if header.base_offset < self._next_offset or (
            self._is_dense and header.base_offset != self._next_offset
        ):
            raise CorruptBatch(
                f"offset {self._next_offset} is next, and the batch says {header.base_offset}",
                at,
                Fault.FIELD,
            )
        return header

    def _at(self, position: int, size_bytes: int) -> int:
        """Makes the window hold `size_bytes` from `position` on, as far as the file reaches."""
        left = self._end_position - position
        if size_bytes > left:
            size_bytes = min(left, _WINDOW_BYTES)
        at = position - self._window_position
        if at < 0 or at + size_bytes > len(self._window):
            self._window = self._file.pread(min(left, max(size_bytes, _WINDOW_BYTES)), position)
            self._window_position, at = position, 0
        return at

    def _classify(self, fault: CorruptBatch) -> None:
        if fault.reason is Fault.TRUNCATED:
            self.ending = Ending.TORN
            return
        self.ending = Ending.BAD
        at = self._at(self.position, HEADER_SIZE)
        size_bytes = batch_extent(self._window, at)[1]
        following = self.position + size_bytes
        if size_bytes < HEADER_SIZE or following >= self._end_position:
            return
        at = self._at(following, HEADER_SIZE)
        if len(self._window) - at < _LENGTH_END:
            return
        at = self._at(following, batch_extent(self._window, at)[1])
        try:
            header = check_batch(self._window, at)
        except CorruptBatch:
            return
        if header.base_offset > self._next_offset:
            self.ending = Ending.DAMAGED
