"""Which partition a record goes to.

Owns the default rule and the shape of a user's own. The default places a key where every Kafka
client places it, and spreads records without a key one batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace_protocol.records import partition_for_key

Partitioner = Callable[[str, bytes | None, int], int | None]
"""`(topic, key, partition_count) -> partition`, or None to leave the record to the batch that is
being filled. Must be fast, and give the same answer for the same arguments."""


def by_key(topic: str, key: bytes | None, partition_count: int) -> int | None:
    """Kafka's placement: murmur2 of the key; None without a key.

    >>> by_key("clicks", b"21", 10)
    6
    """
    return None if key is None else partition_for_key(key, partition_count)
