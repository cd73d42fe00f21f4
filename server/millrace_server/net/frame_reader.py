"""How a connection's bytes are cut into frames or lines, with as few copies as possible.

Owns the bytes that were received and not yet handed out. Knows the length prefix and the line
feed, nothing of what is inside; does no I/O: the connection's transport fills `buffer()`.

Small frames are read into a scratch buffer that all connections of a server share; it holds a
connection's bytes only between `buffer()` and `put_away()`. A large frame gets a buffer of its
own, and the rest of it is received in place. The buffer grows with what has come, so that a length
that is only announced costs nothing:

    scratch  |frame|frame|fra|         `put_away` keeps "fra" as bytes of our own
    private  |fra.........|            one frame of more than IN_PLACE_BYTES; when it is full,
    private  |frame frame frame fr...| GROWTH times as large, up to the size of the frame

Of a very large frame the buffer does not grow, but what of it may be filled.
"""

from __future__ import annotations

import mmap
import struct

from millrace_server.limits import FRAME_BYTES_MIN, READ_BYTES

IN_PLACE_BYTES = 4096
"""An unfinished frame up to this size is kept and copied again with the next read."""
FIRST_BYTES = 8 << 10
"""Size of a private buffer at first, if little of the frame has come."""
GROWTH = 16
"""A frame of 1 MiB, whose first read is some 64 KiB, is in its last buffer at once: each buffer
costs page faults, and with two of them a produce took three times as long."""
CLEARED_BYTES_MAX = 4 << 20
"""A larger frame gets memory for all of it at once, which is clear, and there, when it is first
written. Python would clear 16 MiB in 10 ms, in which nobody is answered. A smaller buffer is memory
that was used before, and so is there."""
_LENGTH = struct.Struct(">I")
_LENGTH_SIZE = _LENGTH.size
_LINE_FEED = 10
_NOTHING = memoryview(b"")


class FramingError(Exception):
    """The peer sent what the framing does not allow; nothing after it can be trusted."""


class FrameLengthError(FramingError):
    """The peer announced a frame of a length out of bounds, as read unsigned."""

    def __init__(self, length: int) -> None:
        super().__init__(f"a frame length of {length}")
        self.length = length


class LineLengthError(FramingError):
    """The peer sent a line that is longer than allowed."""


class Scratch:
    """The read buffer that the connections of one event loop share."""

    __slots__ = ("data", "view")

    def __init__(self) -> None:
        self.data = bytearray(READ_BYTES)
        self.view = memoryview(self.data)


class FrameReader:
    """The cutter of one connection.

    Each read is `buffer()`, `received(n)`, `next_frame()` or `next_line()` until None, then
    `put_away()`. A frame that needs a private buffer shows as `private_bytes_wanted > 0` after
    `next_frame` returned None, and again when that is full; `allocate()` gives it one, at once or
    after later reads were held back.
    """

    __slots__ = (
        "_data",
        "_end",
        "_filled",
        "_frame_bytes",
        "_granted",
        "_line_bytes_max",
        "_private",
        "_scratch",
        "_start",
        "_view",
        "frame_bytes_max",
        "owned",
        "private_bytes_wanted",
    )

    def __init__(self, scratch: Scratch, *, frame_bytes_max: int, line_bytes_max: int) -> None:
        self._scratch = scratch
        self._line_bytes_max = line_bytes_max
        self.frame_bytes_max = frame_bytes_max
        self._data: bytes | bytearray = b""
        self._view = _NOTHING
        self._start = 0
        self._end = 0
        self._private: bytearray | mmap.mmap | None = None
        self._granted = 0
        self._filled = 0
        self._frame_bytes = 0
        self.owned = False
        self.private_bytes_wanted = 0

    @property
    def unread(self) -> memoryview:
        """What is in the shared scratch or was put away, and was not handed out."""
        return self._view[self._start : self._end]

    @property
    def partial(self) -> bool:
        """Whether bytes are held that were not handed out."""
        return self._private is not None or self._end > self._start

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        if self._private is not None:
            return memoryview(self._private)[self._filled : self._granted]
        kept = self._end - self._start
        if kept:
            self._scratch.view[:kept] = self._view[self._start : self._end]
            return self._scratch.view[kept:]
        return self._scratch.view

    def received(self, count: int) -> None:
        """`count` bytes were written at the front of `buffer()`."""
        if self._private is not None:
            self._filled += count
            return
        self._end = self._end - self._start + count
        self._start = 0
        self._data = self._scratch.data
        self._view = self._scratch.view

    def next_frame(self) -> memoryview | None:
        """The next whole frame with its length field, or None when more bytes are needed.

        `owned` then tells whether the caller may keep it; if not, it is good until the next
        call. Raises `FrameLengthError` as soon as the length is known.
        """
        if self._private is not None:
            if self._filled < self._granted:
                return None
            if self._filled < self._frame_bytes:
                self.private_bytes_wanted = min(self._frame_bytes, GROWTH * self._filled)
                return None
            frame = memoryview(self._private)
            self._private = None
            self.owned = True
            return frame
        start = self._start
        available = self._end - start
        if available < _LENGTH_SIZE:
            return None
        length: int = _LENGTH.unpack_from(self._data, start)[0]
        if not FRAME_BYTES_MIN <= length <= self.frame_bytes_max:
            raise FrameLengthError(length)
        size = _LENGTH_SIZE + length
        if size > available:
            if size > IN_PLACE_BYTES:
                self._frame_bytes = size
                self.private_bytes_wanted = min(size, max(FIRST_BYTES, GROWTH * available))
            return None
        self._start = start + size
        self.owned = False
        return self._view[start : start + size]

    def next_line(self) -> bytes | None:
        """The next line without its line feed (and carriage return), or None.

        Raises `LineLengthError` when a line, finished or not, is too long.
        """
        start = self._start
        stop = self._data.find(_LINE_FEED, start, self._end)
        if (self._end if stop < 0 else stop) - start > self._line_bytes_max:
            raise LineLengthError
        if stop < 0:
            return None
        self._start = stop + 1
        return bytes(self._view[start:stop]).removesuffix(b"\r")

    def last_line(self) -> bytes | None:
        """What is left when the peer ends its input without a line feed, as a line."""
        if self._end == self._start:
            return None
        line = bytes(self._view[self._start : self._end])
        self._start = self._end
        return line.removesuffix(b"\r")

    def allocate(self) -> None:
        """Gives the unfinished frame the buffer that it wants, or as much of it as it may fill."""
        self._granted = self.private_bytes_wanted
        self.private_bytes_wanted = 0
        before = self._private
        if isinstance(before, mmap.mmap):
            return
        private: bytearray | mmap.mmap
        if self._frame_bytes > CLEARED_BYTES_MAX:
            private = mmap.mmap(-1, self._frame_bytes)
        else:
            private = bytearray(self._granted)
        if before is not None:
            # Not resized: whoever reads the socket still has a view of it.
            private[: self._filled] = before
        else:
            self._filled = self._end - self._start
            private[: self._filled] = self._view[self._start : self._end]
            self._forget_shared()
        self._private = private

    def put_away(self) -> None:
        """Moves what was not handed out away from the shared scratch."""
        if self._data is not self._scratch.data:
            return
        if self._start == self._end:
            self._forget_shared()
            return
        # Writable like the scratch: whoever takes a frame may write offsets into it.
        self._data = bytearray(self._view[self._start : self._end])
        self._view = memoryview(self._data)
        self._end -= self._start
        self._start = 0

    def discard(self) -> None:
        """Drops everything that is held."""
        self._private = None
        self.private_bytes_wanted = 0
        self._forget_shared()

    def _forget_shared(self) -> None:
        self._data = b""
        self._view = _NOTHING
        self._start = self._end = 0
