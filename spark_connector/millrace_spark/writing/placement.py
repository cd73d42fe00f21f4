"""The partition of each row of a batch, computed a column at a time.

Owns the vectorised form of Kafka's murmur2, which `millrace_protocol.records.murmur2` defines, and
the rule that a row's partition column has precedence over its key. Knows no broker. Imports numpy
and pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace_protocol.records.murmur2 import HOT_KEY_BYTES_MAX, murmur2

ANY = -1
"""The partition of a row without key and partition: the producer chooses."""
Numbers = npt.NDArray[np.int64]
_Hashes = npt.NDArray[np.uint32]
_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)


def place(keys: pa.BinaryArray | None, named: pa.Int32Array | None, count: int) -> Numbers:
    """The partition of each row of a topic that has `count`, or `ANY`.

    `keys` and `named`, where not None, are columns of one length. A named partition is returned
    without a check.
    """
    if keys is None:
        assert named is not None
        placed = np.full(len(named), ANY, np.int64)
    else:
        placed = (hashes(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
        placed[keys.is_null().to_numpy(zero_copy_only=False)] = ANY
    if named is not None:
        is_named = named.is_valid().to_numpy(zero_copy_only=False)
        placed[is_named] = named.drop_null().to_numpy(zero_copy_only=False)
    return placed


def groups(labels: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Each label once, with the rows that have it, in their order."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    bounds = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for rows in np.split(order, bounds) if len(order) else ():
        yield int(labels[rows[0]]), rows


# One step hashes the next four bytes of all keys: 20 ns for a key of 16 bytes, where a hash in
# Python takes 900 ns. There are at most 64 steps, because longer keys are hashed one by one. The
# keys are not copied.
def hashes(keys: pa.BinaryArray) -> _Hashes:
    """The 32 bits of murmur2 of each key; undefined for a null."""
    ends = np.frombuffer(keys.buffers()[1], np.int32)
    bounds: Numbers = ends[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    sizes = bounds[1:] - bounds[:-1]
    if keys.buffers()[2] is None:
        return np.full(len(keys), murmur2(b""), np.uint32)
    is_long = sizes > HOT_KEY_BYTES_MAX
    found = _hashed(keys.buffers()[2], bounds[:-1], np.where(is_long, np.int64(0), sizes))
    for row in np.flatnonzero(is_long).tolist():
        found[row] = murmur2(keys[row].as_py() or b"")
    return found


def _hashed(data: pa.Buffer, starts: Numbers, sizes: Numbers) -> _Hashes:
    hashed = _SEED ^ sizes.astype(np.uint32)
    word_counts = sizes >> 2
    # Every four bytes of the keys as one number, wherever they begin.
    words: _Hashes = np.ndarray(max(data.size - 3, 0), "<u4", data, strides=(1,))
    for index in range(int(word_counts.max(initial=0))):
        rows = np.flatnonzero(word_counts > index)
        word = words[starts[rows] + 4 * index] * _M
        hashed[rows] = hashed[rows] * _M ^ (word ^ word >> np.uint32(24)) * _M
    tail_sizes = sizes & 3
    rows = np.flatnonzero(tail_sizes)
    single = np.frombuffer(data, np.uint8)
    tail_starts = starts[rows] + 4 * word_counts[rows]
    tails = np.zeros(len(rows), np.uint32)
    for index in range(3):
        has = tail_sizes[rows] > index
        tails[has] |= single[tail_starts[has] + index].astype(np.uint32) << np.uint32(8 * index)
    hashed[rows] = (hashed[rows] ^ tails) * _M
    hashed = (hashed ^ hashed >> np.uint32(13)) * _M
    return hashed ^ hashed >> np.uint32(15)
