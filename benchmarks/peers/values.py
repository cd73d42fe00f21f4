"""The values that all contestants send, and the checksum of those that arrive.

Owns the pool: values of one size that look like JSON events, half of them digits, so that lz4 and
zstd have something to do and not too much. Sender `n` of a round cycles through the pool from its
start. The checksum is a sum of CRC-32s, so it does not depend on the order of partitions.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Sequence
from functools import cache

POOL_BYTES = 2 << 20
POOL_VALUES_MIN, POOL_VALUES_MAX = 16, 1_000
SEED = 20
_WORDS = ("click", "view", "cart", "order", "search", "page", "user", "item", "price", "session")


@cache
def pool(value_bytes: int) -> tuple[bytes, ...]:
    """Values of exactly `value_bytes` each, the same ones in every process."""
    count = min(max(POOL_BYTES // value_bytes, POOL_VALUES_MIN), POOL_VALUES_MAX)
    rng = random.Random(SEED)
    return tuple(_value(rng, value_bytes) for _ in range(count))


def _value(rng: random.Random, size: int) -> bytes:
    fields = []
    length = 0
    while length < size:
        field = f'"{rng.choice(_WORDS)}":{rng.getrandbits(40)},'
        fields.append(field)
        length += len(field)
    return ("{" + "".join(fields))[:size].encode()


def checksum(values: Iterable[bytes]) -> int:
    """The sum of the CRC-32s of some values."""
    return sum(map(zlib.crc32, values))


def expected_checksum(value_bytes: int, count: int) -> int:
    """The checksum of the first `count` values that one sender sends."""
    crcs = [zlib.crc32(value) for value in pool(value_bytes)]
    whole, rest = divmod(count, len(crcs))
    return whole * sum(crcs) + sum(crcs[:rest])


def cycled(values: Sequence[bytes], first: int, count: int) -> Sequence[bytes]:
    """`count` values of a cycle, from the one at `first` on."""
    first %= len(values)
    if first + count <= len(values):
        return values[first : first + count]
    whole, rest = divmod(first + count, len(values))
    return [*values[first:], *(list(values) * (whole - 1)), *values[:rest]]
