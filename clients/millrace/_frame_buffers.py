"""Room for large frames, used again once nobody looks into it any more.

A new buffer of megabytes costs more than what is received into it: the kernel has to find and
clear each of its pages, and Python clears it once more. Whoever holds a view of a buffer, as a
batch of records does, keeps it from being used again, for as long as it likes.

Owns the buffers it keeps, a few of limited size. Knows nothing of frames.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Final

KEPT_MAX: Final = 3
"""One that is received into, one that is decoded, and one that waits between them."""
KEPT_BYTES_MAX: Final = 8 * 1024 * 1024 + 4096
"""A larger buffer is given away for good. A fetch of 8 MiB is in a frame that is not larger."""
_ONLY_HERE: Final = 3
"""References to a buffer that is only kept: of the list, of a name, of the call that counts."""


class FrameBuffers:
    """The buffers of one connection."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """`size` bytes to write to, of any content. They are its holder's while a view lives."""
        kept = self._kept
        for index in range(len(kept)):
            buffer = kept[index]
            if len(buffer) >= size and getrefcount(buffer) == _ONLY_HERE:
                # The one that was used last is tried last, for it is in use the longest.
                kept.append(kept.pop(index))
                return memoryview(buffer)[:size]
        made = bytearray(size)
        if size <= KEPT_BYTES_MAX:
            kept.append(made)
            del kept[:-KEPT_MAX]
        return memoryview(made)
