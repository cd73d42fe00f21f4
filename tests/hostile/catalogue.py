"""The known kinds of hostile input, and the attacks of each kind.

Owns the list that must be complete; `python -m tests.hostile --list` prints it. More attacks than
it names may exist.
"""

from __future__ import annotations

from tests.hostile import (
    against_batches,
    against_bodies,
    against_crowds,
    against_frames,
    against_groups,
    against_kafka,
    against_logins,
    against_quotas,
)
from tests.hostile.attack import ATTACKS

__all__ = ["ATTACKS", "CATALOGUE"]
# Each of them adds its attacks when it is imported.
assert all(
    (
        against_batches,
        against_bodies,
        against_crowds,
        against_frames,
        against_groups,
        against_kafka,
        against_logins,
        against_quotas,
    )
)

CATALOGUE: dict[str, tuple[str, ...]] = {
    "a length that is negative": ("a negative length",),
    "a length of 0": ("a length of 0", "a length shorter than the header"),
    "a length of 2^31-1": ("a length of int32 max",),
    "a length one over the limit": (
        "a length one over the limit",
        "a length one over the limit before hello",
    ),
    "a frame cut by FIN": ("a frame cut by fin", "a large frame cut by reset"),
    "a byte now and then": ("one byte at a time", "one byte of text at a time"),
    "connect and say nothing, 10,000 times": (
        "connections that say nothing",
        "connections that announce a frame and wait",
        "large frames that never come",
    ),
    "HTTP on the plain port": ("an http request",),
    "a TLS hello on the plain port": ("a tls hello",),
    "an unknown api": ("apis that do not exist",),
    "an unknown version": ("versions that do not exist",),
    "an array count of 2^31-1 in 20 bytes": (
        "an array of int32 max elements in 20 bytes",
        "arrays in arrays beyond the limit of elements",
    ),
    "null where nothing may be null": ("null where nothing may be null",),
    "overlong varints": ("records that are not what their header says",),
    "a string longer than its frame": (
        "a string longer than its frame",
        "a client id longer than the frame",
    ),
    "bad UTF-8": ("a string that is not utf8",),
    "NUL in names": ("names with nul and control characters",),
    "names of 32 KiB": ("names of 32 kib", "two thousand names of 8 kib"),
    "../ in names": ("names of other directories",),
    "trailing bytes": ("bytes behind a body",),
    "a batch whose CRC does not match": ("a batch with a wrong crc",),
    "a batch length that is not the frame's": (
        "a batch length that is not the batchs",
        "no batch half a batch and two",
    ),
    "a record count negative, wrong or huge": ("a record count negative wrong or huge",),
    "offset deltas inconsistent or overflowing": (
        "a last offset delta inconsistent or overflowing",
        "records that are not what their header says",
    ),
    "timestamps at the limits of int64": (
        "timestamps at the end of int64",
        "timestamps out of order or below minus 1",
    ),
    "an unknown magic or codec": ("magics and codecs that do not exist",),
    "control bits set by a client": ("control batches and other attributes",),
    "decompression bombs": (
        "decompression bombs",
        "a thousand questions about one bomb",
        "bombs for a compacted topic",
    ),
    "100,000 pipelined requests and no reader": (
        "a hundred thousand requests and no reader",
        "unread responses",
    ),
    # Replication has no api yet: every key that could be one is tried.
    "a forged replica id or broker epoch": ("apis that do not exist", "numbers at their limits"),
    "another producer's id": (
        "another producers id",
        "producer ids that were never given",
        "producers that are half there",
    ),
    "floods of joins with 100,000 member ids": (
        "floods of joins with a hundred thousand member ids",
        "newcomers in ever new groups",
        "members that say much in ever new groups",
    ),
    "10,000 failed logins in a minute": ("ten thousand failed logins in a minute",),
    "logins that do not end": ("logins that do not end", "messages of sasl that are none"),
    "a client that takes more than its quota": ("a client that sends a hundred times its quota",),
    "connections that come and go": (
        "connections that come and go",
        "bad frames from ever new connections",
    ),
}
