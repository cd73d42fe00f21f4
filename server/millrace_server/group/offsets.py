"""Committed offsets: which requests may commit or delete them, and which have expired.

Owns the rules over the offsets in the image, which it reads and does not change. Offsets of a group
do not expire while members read the topic, nor during a rebalance, when it is not known which
topics they will read. Source: Kafka's OffsetMetadataManager; KIP-211 for expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millrace_protocol.consumer_protocol import PROTOCOL_TYPE
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.shard import Token
from millrace_server.group.group import Group, Member
from millrace_server.group.image import GroupsImage, held_bytes
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.records import (
    CommittedOffset,
    OffsetCommitRecord,
    OffsetCommitTombstone,
)
from millrace_server.group.requests import (
    NO_MEMBER,
    FetchedOffset,
    GroupAppends,
    GroupEffects,
    OffsetCommit,
    OffsetsResult,
    OffsetToCommit,
    PartitionResult,
    TopicPartition,
)
from millrace_server.group.states import GroupState
from millrace_server.group_config import GroupConfig

TOPIC_LENGTH_MAX = 249
"""Characters; the service checks that the topic exists."""


class Offsets:
    """The offsets of one shard's groups."""

    __slots__ = ("_appends", "_config", "_image", "_quota")

    def __init__(
        self, config: GroupConfig, quota: MemoryQuota, image: GroupsImage, appends: GroupAppends
    ) -> None:
        self._config = config
        self._quota = quota
        self._image = image
        self._appends = appends

    def check_committer(self, group: Group, request: OffsetCommit) -> Member | None:
        """The member that commits, None for a commit without membership. Raises `ApiError`."""
        if group.state is GroupState.DEAD:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"Group {group.name!r} is being deleted; commit again in a moment",
            )
        if request.generation < 0 and group.state is GroupState.EMPTY:
            return None
        has_no_id = request.member_id == NO_MEMBER and request.instance_id is None
        if request.generation < 0 and has_no_id:
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
                "assignment yet; records that were read before it will be read again",
            )
        return member

    def commit(self, request: OffsetCommit, token: Token, effects: GroupEffects) -> None:
        """Commits the offsets of a checked committer; the reply follows when they are durable."""
        records: list[OffsetCommitRecord] = []
        results = []
        room_bytes = self._quota.offsets_room(request.group_id)
        for wanted in request.offsets:
            committed = CommittedOffset(
                wanted.offset, wanted.leader_epoch, wanted.metadata, effects.moment.wall_ms
            )
            before = self._image.of_group(request.group_id).get(wanted.topic, {})
            known = before.get(wanted.partition)
            growth = held_bytes(committed) - (held_bytes(known) if known is not None else 0)
            has_room = growth <= 0 or growth <= room_bytes
            error = self._error_of(
                request.group_id,
                wanted,
                has_room=has_room,
                takes_negative=request.takes_negative,
            )
            results.append(PartitionResult(wanted.topic, wanted.partition, error))
            if error is None:
                room_bytes -= growth
                records.append(
                    OffsetCommitRecord(request.group_id, wanted.topic, wanted.partition, committed)
                )
        result = OffsetsResult(tuple(results))
        if not records:
            effects.reply(token, result)
            return

        def on_ended(error: ApiError | None, effects: GroupEffects) -> None:
            effects.reply(token, offset_write_error(error) if error else result)

        self._appends.start(effects, records, on_ended)

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> list[FetchedOffset]:
        """The durable offsets of a group, all for None.

        With `require_stable` a partition whose commit is being written gets an error (KIP-447): the
        reader takes over from a member that has just committed, and can ask again.
        """
        topics = self._image.of_group(group_id)
        if partitions is None:
            partitions = [
                TopicPartition(topic, partition)
                for topic, committed in topics.items()
                for partition in committed
            ]
        unstable = self._pending(group_id) if require_stable else set()
        found = []
        for topic, partition in partitions:
            if (topic, partition) in unstable:
                error = ApiError(
                    ErrorCode.UNSTABLE_OFFSET_COMMIT,
                    f"A commit of group {group_id!r} for {topic}-{partition} is being written; ask "
                    "again",
                )
                found.append(FetchedOffset(topic, partition, None, error))
            else:
                committed = topics.get(topic, {}).get(partition)
                found.append(FetchedOffset(topic, partition, committed))
        return found

    def delete(
        self, group: Group, partitions: Iterable[TopicPartition]
    ) -> tuple[list[OffsetCommitTombstone], list[PartitionResult]]:
        """The tombstones of a deletion, and its result by partition. Raises `ApiError`."""
        if group.state is not GroupState.EMPTY and group.protocol_type != PROTOCOL_TYPE:
            raise ApiError(
                ErrorCode.NON_EMPTY_GROUP,
                f"Group {group.name!r} has {len(group.members)} members, and the topics that they "
                "use are not known; stop them first",
            )
        known = self.known(group.name)
        records, results = [], []
        for topic, partition in partitions:
            error = None
            if group.state is not GroupState.EMPTY and group.is_subscribed_to(topic):
                error = ApiError(
                    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                    f"Members of group {group.name!r} read topic {topic!r}; stop them first",
                )
            elif (topic, partition) in known:
                records.append(OffsetCommitTombstone(group.name, topic, partition))
            results.append(PartitionResult(topic, partition, error))
        return records, results

    def known(self, group_id: str) -> set[tuple[str, int]]:
        """The partitions that have an offset, or may have one when all appends have ended."""
        known = self._pending(group_id)
        for topic, committed in self._image.of_group(group_id).items():
            known.update((topic, partition) for partition in committed)
        return known

    def tombstones_of(self, group_id: str) -> list[OffsetCommitTombstone]:
        """Tombstones for all offsets of a group."""
        return [OffsetCommitTombstone(group_id, *each) for each in sorted(self.known(group_id))]

    def tombstones_of_topic(self, topic: str) -> list[OffsetCommitTombstone]:
        """Tombstones for a topic's offsets in all groups."""
        records = []
        for group_id in {*self._image.offsets, *self._appends.keys()}:
            records += [each for each in self.tombstones_of(group_id) if each.topic == topic]
        return records

    def expired(self, group: Group, *, wall_ms: int) -> list[OffsetCommitTombstone]:
        """Tombstones for the offsets that the group has not used for the time of retention.

        None while an append about the group is in flight.
        """
        is_expired = self._expiry_rule(group, wall_ms - self._config.offsets_retention_ms)
        if is_expired is None or group.name in self._appends:
            return []
        return [
            OffsetCommitTombstone(group.name, topic, partition)
            for topic, partitions in self._image.of_group(group.name).items()
            for partition, committed in partitions.items()
            if is_expired(topic, committed)
        ]

    def _pending(self, group_id: str) -> set[tuple[str, int]]:
        """Partitions of the group whose offset is being committed or deleted."""
        return {
            (record.topic, record.partition)
            for record in self._appends.records_of(group_id)
            if isinstance(record, OffsetCommitRecord | OffsetCommitTombstone)
        }

    def _expiry_rule(
        self, group: Group, oldest_wall_ms: int
    ) -> Callable[[str, CommittedOffset], bool] | None:
        """Which offsets of a group have expired, None when none can have."""
        if group.state is GroupState.EMPTY:
            # Its members have used the offsets until it became empty.
            if group.protocol_type is not None and group.state_wall_ms > oldest_wall_ms:
                return None
            return lambda _, committed: committed.commit_wall_ms <= oldest_wall_ms
        if group.state is GroupState.STABLE and group.subscribed_topics is not None:
            return lambda topic, committed: (
                not group.is_subscribed_to(topic) and committed.commit_wall_ms <= oldest_wall_ms
            )
        return None

    def _error_of(
        self, group_id: str, wanted: OffsetToCommit, *, has_room: bool, takes_negative: bool
    ) -> ApiError | None:
        topic, partition = wanted.topic, wanted.partition
        most = self._config.offset_metadata_bytes_max
        if len(wanted.metadata) > most or len(wanted.metadata.encode()) > most:
            return ApiError(
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                f"The metadata of the offset of {topic}-{partition} has "
                f"{len(wanted.metadata.encode())} bytes of at most {most}",
            )
        if (wanted.offset < 0 and not takes_negative) or wanted.offset >= 2**63:
            return ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {wanted.offset} for {topic}-{partition}; commit the offset of the next "
                "record to read, 0 or more",
            )
        if not 0 < len(topic) <= TOPIC_LENGTH_MAX or not 0 <= partition < 2**31:
            return ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {partition} of topic {topic[:TOPIC_LENGTH_MAX]!r}",
            )
        if not has_room:
            return self._quota.no_offsets_room(group_id)
        return None


def offset_write_error(error: ApiError) -> ApiError:
    """The error of a commit or a deletion that could not be written."""
    code = error.code
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return ApiError(code, f"The offsets could not be written: {error.message}")
