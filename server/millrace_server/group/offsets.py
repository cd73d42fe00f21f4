"""Committed offsets: who may commit, who may forget, and what expires.

Owns the rules over the offsets in the image, which it reads and never writes. Source: Kafka's group
coordinator; KIP-211 for expiry. A group's offsets never expire while it has members that read the
topic, nor in the middle of a rebalance, when nobody knows what they will read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.appends import AppendsInFlight
from millrace_server.group.config import GroupConfig
from millrace_server.group.effects import FetchedOffset, PartitionOutcome, Refusal
from millrace_server.group.group import Group
from millrace_server.group.image import GroupsImage, held_bytes
from millrace_server.group.member import Member
from millrace_server.group.records import CommittedOffset, OffsetForgotten, OffsetWritten
from millrace_server.group.requests import NO_MEMBER, Commit, OffsetToCommit, TopicPartition
from millrace_server.group.room import Room
from millrace_server.group.states import GroupState
from millrace_server.group.subscription import CONSUMER_PROTOCOL_TYPE

TOPIC_LENGTH_MAX = 249
"""Characters; whether there is such a topic is the shell's question."""


class Offsets:
    """The offsets of one coordinator's groups."""

    __slots__ = ("_appends", "_config", "_image", "_room")

    def __init__(
        self, config: GroupConfig, room: Room, image: GroupsImage, appends: AppendsInFlight
    ) -> None:
        self._config = config
        self._room = room
        self._image = image
        self._appends = appends

    def check_committer(self, group: Group, request: Commit) -> Member | None:
        """The member that commits, None for a commit from outside. Raises `ApiError`."""
        if group.state is GroupState.DEAD:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"Group {group.name!r} is being deleted; commit again in a moment",
            )
        if request.generation < 0 and group.state is GroupState.EMPTY:
            return None
        is_outsider = request.member_id == NO_MEMBER and request.instance_id is None
        if request.generation < 0 and is_outsider:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Group {group.name!r} has {len(group.members)} members, and only they may commit "
                "its offsets; stop them first",
            )
        member = group.check_member(request.member_id, request.instance_id)
        group.check_generation(request.generation)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise ApiError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"Group {group.name!r} has begun generation {group.generation} and has no "
                "assignment yet; what was read before it will be read again",
            )
        return member

    def commit(
        self, request: Commit, *, wall_ms: int
    ) -> tuple[list[OffsetWritten], list[PartitionOutcome]]:
        """Records of what a checked committer wants remembered, and what becomes of each part."""
        records: list[OffsetWritten] = []
        outcomes = []
        room_bytes = self._config.offsets_bytes_max - self._room.offsets_bytes
        for wanted in request.offsets:
            committed = CommittedOffset(
                wanted.offset, wanted.leader_epoch, wanted.metadata, wall_ms
            )
            before = self._image.of_group(request.group_id).get(wanted.topic, {})
            known = before.get(wanted.partition)
            growth = held_bytes(committed) - (held_bytes(known) if known is not None else 0)
            has_room = growth <= 0 or growth <= room_bytes
            refusal = self._refusal(request.group_id, wanted, has_room=has_room)
            outcomes.append(PartitionOutcome(wanted.topic, wanted.partition, refusal))
            if refusal is None:
                room_bytes -= growth
                records.append(
                    OffsetWritten(request.group_id, wanted.topic, wanted.partition, committed)
                )
        return records, outcomes

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> list[FetchedOffset]:
        """What the group has durably committed; None for `partitions` means all there is.

        With `require_stable` a partition whose commit is being written is refused: the reader is
        about to take over from somebody who has just committed, and can wait a moment.
        """
        topics = self._image.of_group(group_id)
        if partitions is None:
            partitions = [
                TopicPartition(topic, partition)
                for topic, committed in topics.items()
                for partition in committed
            ]
        unstable = self._appends.offsets_of(group_id) if require_stable else set()
        found = []
        for topic, partition in partitions:
            if (topic, partition) in unstable:
                refusal = Refusal.saying(
                    ErrorCode.UNSTABLE_OFFSET_COMMIT,
                    f"A commit of group {group_id!r} for {topic}-{partition} is being written; ask "
                    "again",
                )
                found.append(FetchedOffset(topic, partition, None, refusal))
            else:
                committed = topics.get(topic, {}).get(partition)
                found.append(FetchedOffset(topic, partition, committed))
        return found

    def delete(
        self, group: Group, partitions: Iterable[TopicPartition]
    ) -> tuple[list[OffsetForgotten], list[PartitionOutcome]]:
        """Tombstones for what may go, and what becomes of each part. Raises `ApiError`."""
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise ApiError(
                ErrorCode.NON_EMPTY_GROUP,
                f"Group {group.name!r} has {len(group.members)} members, and what they use is not "
                "known; stop them first",
            )
        known = self.known(group.name)
        records, outcomes = [], []
        for topic, partition in partitions:
            refusal = None
            if group.state is not GroupState.EMPTY and group.reads(topic):
                refusal = Refusal.saying(
                    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                    f"Members of group {group.name!r} read topic {topic!r}; stop them first",
                )
            elif (topic, partition) in known:
                records.append(OffsetForgotten(group.name, topic, partition))
            outcomes.append(PartitionOutcome(topic, partition, refusal))
        return records, outcomes

    def known(self, group_id: str) -> set[tuple[str, int]]:
        """The partitions that have an offset or will have one when everything is written."""
        known = self._appends.offsets_of(group_id)
        for topic, committed in self._image.of_group(group_id).items():
            known.update((topic, partition) for partition in committed)
        return known

    def forget_all(self, group_id: str) -> list[OffsetForgotten]:
        """Tombstones for all offsets of a group."""
        return [OffsetForgotten(group_id, *each) for each in sorted(self.known(group_id))]

    def forget_topic(self, topic: str) -> list[OffsetForgotten]:
        """Tombstones for a topic's offsets in all groups."""
        records = []
        for group_id in {*self._image.offsets, *self._appends.group_ids()}:
            records += [each for each in self.forget_all(group_id) if each.topic == topic]
        return records

    def expired(self, group: Group, *, wall_ms: int) -> list[OffsetForgotten]:
        """Tombstones for what the group has not needed for the time of retention.

        A group whose offsets are being written right now is not looked at.
        """
        is_expired = self._expiry_rule(group, wall_ms - self._config.offsets_retention_ms)
        if is_expired is None or self._appends.touch(group.name):
            return []
        return [
            OffsetForgotten(group.name, topic, partition)
            for topic, partitions in self._image.of_group(group.name).items()
            for partition, committed in partitions.items()
            if is_expired(topic, committed)
        ]

    def _expiry_rule(
        self, group: Group, oldest_wall_ms: int
    ) -> Callable[[str, CommittedOffset], bool] | None:
        """Which offsets of a group have expired, None when none can have."""
        if group.state is GroupState.EMPTY:
            # Its members have needed the offsets until it became empty.
            if group.protocol_type is not None and group.state_wall_ms > oldest_wall_ms:
                return None
            return lambda _, committed: committed.commit_wall_ms <= oldest_wall_ms
        if group.state is GroupState.STABLE and group.topics is not None:
            return lambda topic, committed: (
                not group.reads(topic) and committed.commit_wall_ms <= oldest_wall_ms
            )
        return None

    def _refusal(self, group_id: str, wanted: OffsetToCommit, *, has_room: bool) -> Refusal | None:
        topic, partition = wanted.topic, wanted.partition
        most = self._config.offset_metadata_bytes_max
        if len(wanted.metadata) > most or len(wanted.metadata.encode()) > most:
            return Refusal.saying(
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                f"The text beside the offset of {topic}-{partition} has "
                f"{len(wanted.metadata.encode())} bytes and may have {most}",
            )
        if wanted.offset < 0 or wanted.offset >= 2**63:
            return Refusal.saying(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {wanted.offset} for {topic}-{partition}; commit the offset of the next "
                "record to read, 0 or more",
            )
        if not 0 < len(topic) <= TOPIC_LENGTH_MAX or not 0 <= partition < 2**31:
            return Refusal.saying(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {partition} of topic {topic[:TOPIC_LENGTH_MAX]!r}",
            )
        if not has_room:
            return Refusal.saying(
                ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
                f"The offsets that groups have committed take {self._room.offsets_bytes} bytes of "
                f"memory here, and all that they may is {self._config.offsets_bytes_max}: there "
                f"is no room for one more of group {group_id!r}; delete groups that are not used "
                "any more, or raise the broker's offsets_memory_max_bytes",
            )
        return None
