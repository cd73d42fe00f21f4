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
KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
"""A larger buffer is given away for good, unless whoever makes the connection says otherwise. Room
for the headers of a frame is theirs to add."""
_ONLY_HERE: Final = 3
"""References to a buffer that is only kept: of the list, of a name, of the call that counts."""


class FrameBuffers:
    """The buffers of one connection; keeps those of at most `kept_bytes_max`."""

    __slots__ = ("_kept", "_kept_bytes_max")

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept: list[bytearray] = []
        self._kept_bytes_max = kept_bytes_max

    def take(self, size: int) -> memoryview:
        """`size` bytes to write to, of any content. They are its holder's while a view lives."""
        kept = self._kept
        for index in range(len(kept)):
            buffer = kept[index]
            if len(buffer) >= size and getrefcount(buffer) == _ONLY_HERE:
                # The one that was used last is tried last, for it is in use the longest.
                kept.append(kept.pop(index))
                return memoryview(buffer)[:size]
        room = _rounded(size)
        if room > self._kept_bytes_max:
            return memoryview(bytearray(size))
        made = bytearray(room)
        kept.append(made)
        del kept[:-KEPT_MAX]
        return memoryview(made)[:size]


def _rounded(size: int) -> int:
    """A little more than `size`, a sixteenth at most, that answers of about that size fit into."""
    grain = 1 << max(0, size.bit_length() - 5)
    return -(-size // grain) * grain
