"""Bytes changed at random, the same way for the same seed: for machines without atheris.

Owns the mutations. They know nothing of what the bytes mean, but prefer the places and numbers
where decoders break: lengths, signs, limits, and pieces of other inputs.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

INPUT_BYTES_MAX = 4096
_NUMBERS = (0, 1, -1, 2, 7, 63, 64, 127, 128, 255, 256, 8191, 8192, 2**15 - 1, -(2**15))
_LARGE_NUMBERS = (2**31 - 1, -(2**31), 2**31 - 2, 2**24, 100_000, 20_001)
_HUGE_NUMBERS = (2**63 - 1, -(2**63), 2**62, 2**32)


def mutations(
    seeds: Sequence[bytes], *, count: int, seed: int, bytes_max: int = INPUT_BYTES_MAX
) -> Iterator[bytes]:
    """The seeds themselves, then `count` changed ones of at most `bytes_max`; some of them become
    seeds in turn."""
    rng = random.Random(seed)
    pool = list(seeds)
    yield from pool
    for _ in range(count):
        changed = bytearray(rng.choice(pool))
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            rng.choice(_MUTATORS)(changed, rng, pool)
        made = bytes(changed[:bytes_max])
        if len(pool) < 4 * len(seeds) + 64:
            pool.append(made)
        elif rng.random() < 0.01:
            pool[rng.randrange(len(seeds), len(pool))] = made
        yield made


def _flip(data: bytearray, rng: random.Random, pool: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random, pool: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))


def _number(data: bytearray, rng: random.Random, pool: Sequence[bytes]) -> None:
    layout, numbers = rng.choice(
        (
            ("h", _NUMBERS),
            ("i", _NUMBERS + _LARGE_NUMBERS),
            ("q", _NUMBERS + _LARGE_NUMBERS + _HUGE_NUMBERS),
        )
    )
    packed = struct.pack(rng.choice("<>>>") + layout, rng.choice(numbers))
    at = rng.randrange(len(data) + 1)
    data[at : at + len(packed)] = packed


def _insert(data: bytearray, rng: random.Random, pool: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4, 9, 64)))


def _delete(data: bytearray, rng: random.Random, pool: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 1, 2, 4, 9, 64))]


def _cut(data: bytearray, rng: random.Random, pool: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _repeat(data: bytearray, rng: random.Random, pool: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.choice((1, 4, 16, 61, 200))]
    # Hundreds of one bracket are how a parser runs out of stack.
    data[at:at] = (piece * rng.choice((1, 2, 20, 2000)))[:INPUT_BYTES_MAX]


def _splice(data: bytearray, rng: random.Random, pool: Sequence[bytes]) -> None:
    other = rng.choice(pool)
    start = rng.randrange(len(other) + 1)
    at = rng.randrange(len(data) + 1)
    data[at : at + rng.choice((0, 0, 8, 64))] = other[start : start + rng.choice((8, 64, 512))]


_MUTATORS = (_flip, _overwrite, _number, _insert, _delete, _cut, _repeat, _splice)
