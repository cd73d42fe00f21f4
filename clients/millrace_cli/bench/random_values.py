"""Values of a given size, of random letters: codecs find no repetitions in them.

One of 26 letters carries 4.7 bits, so the best compression is to 59 %.
"""

from __future__ import annotations

from itertools import cycle, islice
from random import Random
from string import ascii_uppercase

POOL_BYTES = 1 << 20
"""Values repeat after so many bytes: not within a batch, unless `batch_bytes` is larger."""
_LETTERS = bytes(ord(ascii_uppercase[byte % 26]) for byte in range(256))


class RandomValues:
    """Values without an end, the same in each run."""

    def __init__(self, size: int) -> None:
        self.size = size
        count = max(1, POOL_BYTES // size)
        pool = Random(size).randbytes(count * size).translate(_LETTERS)
        self._values = cycle([pool[at : at + size] for at in range(0, len(pool), size)])

    def take(self, count: int) -> list[bytes]:
        """The next `count` values."""
        return list(islice(self._values, count))
