"""The internal topic that groups live in, and which of its partitions a group belongs to.

The leader of that partition is the group's coordinator. Computed as Kafka does, so that tools which
know Kafka find a group where they expect it.
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50
"""Kafka's `offsets.topic.num.partitions`. It never changes once the topic exists: a group would
be looked for where it is not."""


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, as a signed 32-bit number.

    >>> java_string_hash("hourly")
    -1211426191
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for_group(group_id: str, partitions: int = OFFSETS_PARTITIONS) -> int:
    """The group's partition, 0 to `partitions` - 1.

    The smallest hash has no absolute value in 32 bits; Kafka takes 0 for it.
    """
    value = java_string_hash(group_id)
    return (0 if value == -0x8000_0000 else abs(value)) % partitions
