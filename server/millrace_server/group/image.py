"""The image: the durable state of one shard, made by replaying its partition from the start.

Owns the last written generation of each group and the committed offsets. `replay` is the only way
to change it, while a shard is loaded and afterwards, so both give the same. The later record of a
key replaces the earlier, so a compacted partition gives the same too. Holds no rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.records import (
    CommittedOffset,
    GroupMetadataRecord,
    GroupMetadataTombstone,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitRecord,
    OffsetCommitTombstone,
)

GroupOffsets = dict[str, dict[int, CommittedOffset]]
"""Topic to partition to committed offset; neither level is ever empty."""
OFFSET_BYTES = 300
"""A committed offset in memory, without its text."""


def held_bytes(committed: CommittedOffset) -> int:
    """About what a committed offset takes in memory."""
    return OFFSET_BYTES + len(committed.metadata)


class GroupsImage:
    """Everything that the records of one partition of the offsets topic say.

    Invariants: `offsets_bytes` is what the committed offsets in `offsets` hold, by `held_bytes`,
    and is part of the `offsets_bytes` of the quota; the inner maps of `offsets` are never empty.
    """

    __slots__ = ("_quota", "groups", "offsets", "offsets_bytes")

    def __init__(self, quota: MemoryQuota) -> None:
        self._quota = quota
        self.groups: dict[str, GroupMetadataValue] = {}
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
        """Takes the next record of the partition."""
        match record:
            case OffsetCommitRecord(group_id, topic, partition, committed):
                topics = self.offsets.get(group_id)
                if topics is None:
                    topics = self.offsets[group_id] = {}
                partitions = topics.get(topic)
                if partitions is None:
                    partitions = topics[topic] = {}
                before = partitions.get(partition)
                grown = held_bytes(committed) - (held_bytes(before) if before else 0)
                self._hold(group_id, grown)
                partitions[partition] = committed
            case OffsetCommitTombstone(group_id, topic, partition):
                self._remove_offset(group_id, topic, partition)
            case GroupMetadataRecord(group_id, value):
                self.groups[group_id] = value
            case GroupMetadataTombstone(group_id):
                self.groups.pop(group_id, None)

    def release(self) -> None:
        """Gives its part of the quota back; the image is not used any more."""
        for group_id in self.offsets:
            self._quota.release_offsets(group_id)
        self.offsets_bytes = 0

    def _hold(self, group_id: str, size_bytes: int) -> None:
        if size_bytes:
            self.offsets_bytes += size_bytes
            self._quota.hold_offsets(group_id, size_bytes)

    def _remove_offset(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.offsets.get(group_id, {})
        partitions = topics.get(topic, {})
        removed = partitions.pop(partition, None)
        if removed is None:
            return
        self._hold(group_id, -held_bytes(removed))
        if not partitions:
            del topics[topic]
        if not topics:
            del self.offsets[group_id]
