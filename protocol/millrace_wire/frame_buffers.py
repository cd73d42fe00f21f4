"""Memory for large frames that is used again as soon as no view of it is left.

Owns the buffers of one connection, a few of limited size. Knows nothing of frames.

A new buffer of megabytes costs more than the bytes that are received into it: the kernel has to
find and clear each of its pages, and Python clears it once more. A view of a buffer, such as a
batch of records has, keeps the buffer from being used again for as long as the view lives.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Final

KEPT_MAX: Final = 3
"""One buffer is received into, one is decoded, and one waits between them."""
KEPT_BYTES_MAX: Final = 8 << 20
"""A larger buffer is not kept, unless the maker of the connection sets another limit. A limit has
to cover the headers of a frame too."""
KEPT_BYTES_MIN: Final = 64 << 10
"""Frames up to this size have no buffer here: new memory of that size costs little, and a small
buffer would take the place of a large one."""
_ONLY_HERE: Final = 3
"""References to a buffer that is only kept: the list's, a name's, and the counting call's."""


class FrameBuffers:
    """The buffers of one connection. Keeps `KEPT_MAX` of at most `kept_bytes_max` bytes."""

    __slots__ = ("_kept", "_kept_bytes_max")

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept: list[bytearray] = []
        self._kept_bytes_max = kept_bytes_max

    def take(self, size: int, *, wanted: int) -> memoryview | None:
        """`size` bytes of any content for a frame that wants `wanted` of them by this time.

        Returns None where the frame is small, or where there would have to be a new buffer for
        bytes that are only announced. The bytes belong to the caller while a view of them lives.
        """
        if size <= KEPT_BYTES_MIN:
            return None
        kept = self._kept
        for index in range(len(kept)):
            buffer = kept[index]
            if len(buffer) >= size and getrefcount(buffer) == _ONLY_HERE:
                # The buffer that was used last is tried last, for it is in use the longest.
                kept.append(kept.pop(index))
                return memoryview(buffer)[:size]
        if wanted < size:
            return None
        rounded = _rounded(size)
        if rounded > self._kept_bytes_max:
            return memoryview(bytearray(size))
        made = bytearray(rounded)
        kept.append(made)
        del kept[:-KEPT_MAX]
        return memoryview(made)[:size]


def _rounded(size: int) -> int:
    """`size` and at most a sixteenth more, so that frames of about that size share a buffer."""
    grain = 1 << max(0, size.bit_length() - 5)
    return -(-size // grain) * grain
