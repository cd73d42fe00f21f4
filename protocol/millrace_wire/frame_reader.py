"""Cuts the bytes of one connection into frames, with as few copies as possible.

Owns the bytes that were received and not yet handed out. Knows the length field and nothing of
what follows it, so that it serves requests and responses alike. Does no I/O: the connection's
transport fills `buffer()`. Source: wire_spec.md W-2.1.

A read goes into a scratch buffer that all connections of an event loop share. It holds the bytes
of one connection only between `buffer()` and `release_scratch()`. A large frame gets memory of its
own, and the rest of it is received in place. That memory grows with the bytes that have arrived,
so that a length that is only announced costs nothing:

    scratch  |frame|frame|fra|         `release_scratch` copies "fra" to the reader's own bytes
    private  |fra.........|            one frame of more than IN_PLACE_BYTES; when it is full,
    private  |fraaaaaaaaaaaaaaame...|  GROWTH times as large, up to the size of the frame

A very large frame has address space for all of it at once. There grows only the part that may be
filled.

A protocol whose requests are no frames, such as lines of text, looks at `unread` and cuts its own
units with `find` and `take`.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from millrace_protocol.framing import HEADER_SIZE, LENGTH_SIZE

IN_PLACE_BYTES: Final = 4096
"""An unfinished frame up to this size is copied to the front of the scratch with the next read."""
FIRST_BYTES: Final = 8 << 10
"""Size of a frame's first memory, where little of the frame has arrived."""
GROWTH: Final = 16
"""A frame of 1 MiB, whose first read is some 64 KiB, is in its last memory at once: each growth
costs page faults, and with two of them a produce takes three times as long."""
CLEARED_BYTES_MAX: Final = 4 << 20
"""A larger frame gets anonymous memory, which the kernel clears page by page as it is filled.
Python clears 16 MiB in 10 ms, and the event loop stands still for that long. Smaller memory has
been used before and needs no page faults."""
FRAME_BYTES_MIN: Final = HEADER_SIZE - LENGTH_SIZE
"""Smallest `length` of a frame of the native protocol (W-2.1)."""
_LENGTH: Final = struct.Struct(">I")
_NO_BYTES: Final = memoryview(b"")


class FramingError(Exception):
    """The bytes cannot be cut into requests or responses, and nothing after them can be trusted."""


class FrameLengthError(FramingError):
    """The peer announced a frame whose `length` is outside the limits."""

    def __init__(self, length: int, *, frame_bytes_min: int, frame_bytes_max: int) -> None:
        super().__init__(
            f"a frame length of {length}; {frame_bytes_min} to {frame_bytes_max} are accepted"
        )
        self.length = length


class Scratch:
    """The read buffer that the connections of one event loop share.

    Raises `ValueError` for a size that an unfinished small frame fills.
    """

    __slots__ = ("data", "view")

    def __init__(self, size: int) -> None:
        if size <= IN_PLACE_BYTES:
            raise ValueError(f"a scratch has more than {IN_PLACE_BYTES} bytes, not {size}")
        self.data = bytearray(size)
        self.view = memoryview(self.data)


class FrameReader:
    """The reader of one connection. Each read is one round:

    1. `buffer()`, which the transport fills, and `received(count)`.
    2. `next_frame()` until it returns None. A frame of a length outside `frame_bytes_min` to
       `frame_bytes_max` raises `FrameLengthError`; both count the bytes after the length field.
    3. Where `wanted_bytes` is not 0, the unfinished frame needs that much memory: `allocate()`
       gives it, at once or later. Until then the connection must not be read.
    4. `release_scratch()`.

    `wanted_bytes <= frame_size`, and `wanted_bytes <= max(FIRST_BYTES, GROWTH * arrived)`.
    """

    __slots__ = (
        "_data",
        "_end",
        "_filled",
        "_granted",
        "_is_lazy",
        "_private",
        "_scratch",
        "_start",
        "_view",
        "frame_bytes_max",
        "frame_bytes_min",
        "frame_size",
        "owned",
        "wanted_bytes",
    )

    def __init__(
        self, scratch: Scratch, *, frame_bytes_max: int, frame_bytes_min: int = FRAME_BYTES_MIN
    ) -> None:
        self.frame_bytes_min = frame_bytes_min
        self.frame_bytes_max = frame_bytes_max
        self.frame_size = 0
        """Size of the unfinished frame that has or wants memory of its own, with its length
        field; else 0."""
        self.wanted_bytes = 0
        self.owned = False
        """Whether the frame that `next_frame` returned last belongs to the caller. A borrowed
        frame may be read and written until the next call of the reader."""
        self._scratch = scratch
        self._data: bytes | bytearray = b""
        self._view = _NO_BYTES
        self._start = 0
        self._end = 0
        self._private: memoryview | None = None
        self._is_lazy = False
        self._granted = 0
        self._filled = 0

    @property
    def unread_bytes(self) -> int:
        """How many bytes have arrived and were not handed out."""
        return self._filled if self._private is not None else self._end - self._start

    @property
    def unread(self) -> memoryview:
        """The bytes that have arrived and were not handed out, until the next call.

        Those of a frame that has memory of its own are not among them.
        """
        return self._view[self._start : self._end]

    def peek(self, count: int) -> bytes:
        """A copy of the first `count` bytes of the next frame, or of as many as have arrived."""
        if self._private is not None:
            return bytes(self._private[: min(count, self._filled)])
        return bytes(self._view[self._start : min(self._start + count, self._end)])

    @property
    def missing_bytes(self) -> int:
        """How many bytes the unfinished frame lacks that has memory of its own; else 0."""
        return 0 if self._private is None else self.frame_size - self._filled

    def buffer(self) -> memoryview:
        """The memory that the next bytes go to."""
        if self._private is not None:
            return self._private[self._filled : self._granted]
        kept = self._end - self._start
        if kept:
            self._scratch.view[:kept] = self._view[self._start : self._end]
            return self._scratch.view[kept:]
        return self._scratch.view

    def received(self, count: int) -> None:
        """The transport wrote `count` bytes at the front of `buffer()`."""
        if self._private is not None:
            self._filled += count
            return
        self._end = self._end - self._start + count
        self._start = 0
        self._data = self._scratch.data
        self._view = self._scratch.view

    def next_frame(self) -> memoryview | None:
        """The next whole frame with its length field, or None when it needs more bytes.

        Raises `FrameLengthError` as soon as the length is known.
        """
        if self._private is not None:
            return self._finished()
        start = self._start
        available = self._end - start
        if available < LENGTH_SIZE:
            return None
        length: int = _LENGTH.unpack_from(self._data, start)[0]
        if not self.frame_bytes_min <= length <= self.frame_bytes_max:
            raise FrameLengthError(
                length, frame_bytes_min=self.frame_bytes_min, frame_bytes_max=self.frame_bytes_max
            )
        size = LENGTH_SIZE + length
        if size > available:
            if size > IN_PLACE_BYTES:
                self.frame_size = size
                self.wanted_bytes = min(size, max(FIRST_BYTES, GROWTH * available))
            return None
        self._start = start + size
        self.owned = False
        return self._view[start : start + size]

    def find(self, byte: int) -> int:
        """How many unread bytes stand before the first `byte`, or -1 where there is none."""
        found = self._data.find(byte, self._start, self._end)
        return found if found < 0 else found - self._start

    def take(self, count: int) -> bytes:
        """A copy of the next `count` unread bytes, or of all where there are fewer."""
        start, self._start = self._start, min(self._start + count, self._end)
        return bytes(self._view[start : self._start])

    def allocate(self, buffer: memoryview | None = None) -> None:
        """Gives the unfinished frame the memory that it wants.

        `buffer` has exactly `frame_size` bytes and belongs to the frame from here on. Without it
        the reader makes memory of `wanted_bytes`.
        """
        granted, self.wanted_bytes = self.wanted_bytes, 0
        before = self._private
        if buffer is not None:
            granted = self.frame_size
            self._is_lazy = False
        elif self._is_lazy:
            self._granted = granted
            return
        elif self.frame_size > CLEARED_BYTES_MAX:
            buffer = memoryview(mmap.mmap(-1, self.frame_size))
            self._is_lazy = True
        else:
            # Not the memory before, resized: the transport may still have a view of that.
            buffer = memoryview(bytearray(granted))
        if before is not None:
            buffer[: self._filled] = before[: self._filled]
        else:
            self._filled = self._end - self._start
            buffer[: self._filled] = self._view[self._start : self._end]
            self._forget_shared()
        self._private = buffer
        self._granted = granted

    def release_scratch(self) -> None:
        """Copies the bytes that were not handed out from the shared scratch to the reader's own."""
        if self._data is not self._scratch.data:
            return
        if self._start == self._end:
            self._forget_shared()
            return
        # Writable like the scratch: the receiver of a borrowed frame may write offsets into it.
        self._data = bytearray(self._view[self._start : self._end])
        self._view = memoryview(self._data)
        self._end -= self._start
        self._start = 0

    def discard(self) -> None:
        """Drops all bytes and memory that the reader holds."""
        self._forget_private()
        self._forget_shared()

    def _finished(self) -> memoryview | None:
        if self._filled < self._granted:
            return None
        if self._filled < self.frame_size:
            self.wanted_bytes = min(self.frame_size, GROWTH * self._filled)
            return None
        frame = self._private
        self._forget_private()
        self.owned = True
        return frame

    def _forget_private(self) -> None:
        self._private = None
        self._is_lazy = False
        self._granted = self._filled = 0
        self.frame_size = self.wanted_bytes = 0

    def _forget_shared(self) -> None:
        self._data = b""
        self._view = _NO_BYTES
        self._start = self._end = 0
