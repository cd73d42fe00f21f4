"""The image: what replaying the offsets topic from its start gives.

Owns what is durable: the last written generation of each group, and its committed offsets. `replay`
is the only way to change it, at restart as in normal running, so both give the same. The later
record of a key replaces the earlier, so a compacted topic gives the same too. Holds no rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace_server.group.records import (
    CommittedOffset,
    GroupForgotten,
    GroupRecord,
    GroupWritten,
    OffsetForgotten,
    OffsetWritten,
    StoredGroup,
)

GroupOffsets = dict[str, dict[int, CommittedOffset]]
"""Topic to partition to what is committed; neither level is ever empty."""
OFFSET_BYTES = 300
"""A committed offset in memory, without its text."""


def held_bytes(committed: CommittedOffset) -> int:
    """About what a committed offset takes in memory."""
    return OFFSET_BYTES + len(committed.metadata)


class GroupsImage:
    """Everything the records of one partition of the offsets topic say.

    Invariant: `offsets_bytes` is what the committed offsets in `offsets` take, by `held_bytes`;
    its inner maps are never empty.
    """

    __slots__ = ("groups", "offsets", "offsets_bytes")

    def __init__(self) -> None:
        self.groups: dict[str, StoredGroup] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.offsets_bytes = 0

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.offsets

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupsImage):
            return NotImplemented
        return self.groups == other.groups and self.offsets == other.offsets

    __hash__ = None  # type: ignore[assignment]

    def names(self) -> Iterator[str]:
        """Every group that a record tells of, each once."""
        yield from self.groups
        yield from (name for name in self.offsets if name not in self.groups)

    def of_group(self, group_id: str) -> GroupOffsets:
        """The group's committed offsets; to be read, not to be changed."""
        return self.offsets.get(group_id, {})

    def replay(self, record: GroupRecord) -> None:
        """Takes the next record of the topic."""
        match record:
            case OffsetWritten(group_id, topic, partition, committed):
                topics = self.offsets.get(group_id)
                if topics is None:
                    topics = self.offsets[group_id] = {}
                partitions = topics.get(topic)
                if partitions is None:
                    partitions = topics[topic] = {}
                self.offsets_bytes += held_bytes(committed)
                if (before := partitions.get(partition)) is not None:
                    self.offsets_bytes -= held_bytes(before)
                partitions[partition] = committed
            case OffsetForgotten(group_id, topic, partition):
                self._forget(group_id, topic, partition)
            case GroupWritten(group_id, stored):
                self.groups[group_id] = stored
            case GroupForgotten(group_id):
                self.groups.pop(group_id, None)

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.offsets.get(group_id, {})
        partitions = topics.get(topic, {})
        forgotten = partitions.pop(partition, None)
        if forgotten is None:
            return
        self.offsets_bytes -= held_bytes(forgotten)
        if not partitions:
            del topics[topic]
        if not topics:
            del self.offsets[group_id]
