"""Topics: which changes of them are allowed, and the records that make them.

Pure functions of an image and a request, like all rules of the controller: they return records and
change nothing. The active controller appends the records, waits until they are committed, and
replays them. Random numbers, ids and the values of a broker's environment come in with the request.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    UNASSIGNED_DIRECTORY,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata.assignments import Assignments, check_assignments
from millrace_server.metadata.delta import preview
from millrace_server.metadata.image import BrokerRegistration, ClusterImage, Topic
from millrace_server.metadata.leader_election import on_topic_settings
from millrace_server.metadata.placement import place, turn_of
from millrace_server.metadata.replication_settings import (
    MIN_ISR,
    UNCLEAN_ELECTION,
    with_shared_settings,
)
from millrace_server.topic_config import (
    INTERNAL_TOPIC_PREFIX,
    TopicConfig,
    check_topic_name,
)

REPLICATION_FACTOR_DEFAULT = 3


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a request that says -1 gets, and the settings under a topic's own.

    `replication_factor` is for as many brokers at least; with fewer there is a replica on each.
    Brokers count that are registered, in service or not.
    """

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    partitions_max: int = 4_000
    """Partitions of all topics together, that clients may make a broker open."""


class TopicChanges:
    """The rules of change for topics, under the defaults of this broker's configuration."""

    def __init__(self, defaults: TopicDefaults) -> None:
        self._defaults = defaults

    def brokers_expected(self, image: ClusterImage) -> int:
        """As many brokers are to be registered before a topic gets the default replication factor.

        Every voter of the quorum is a broker that registers when the cluster starts first.
        """
        return min(self._defaults.replication_factor, len(image.voters))

    def new_partitions(self, partitions: int, assignments: Assignments) -> int:
        """How many partitions a new topic gets, as far as the request says something valid."""
        return len(assignments) or (self._defaults.partitions if partitions == -1 else partitions)

    def create_topic(
        self,
        image: ClusterImage,
        name: str,
        *,
        topic_id: uuid.UUID,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str | None],
        assignments: Assignments = (),
        start: int = 0,
        is_internal: bool = False,
    ) -> list[MetadataRecord]:
        """Records that create a topic; -1 for a count means the default. Raises `ApiError`.

        Both counts are -1 where there are `assignments`.
        `start` is random and says where placement begins; `is_internal` is for topics that the
        broker creates for itself. A topic with several replicas gets the settings of its own that
        all its brokers must read alike.
        """
        _check_new_name(image, name, is_internal=is_internal)
        changed = TopicConfig({}, self._defaults.configs).changed(configs)
        if assignments:
            _check_no_counts(partitions, replication_factor)
            partitions, replication_factor = len(assignments), len(assignments[0])
        partitions = self._defaults.partitions if partitions == -1 else partitions
        self._check_partitions(image, partitions, more=partitions)
        if replication_factor == -1:
            replication_factor = min(self._defaults.replication_factor, len(image.brokers))
        placed = _placed(image, range(partitions), replication_factor, start, assignments)
        own = self._own(changed, replication_factor)
        return [
            TopicRecord(name, topic_id),
            *_new_partitions(image, topic_id, range(partitions), placed),
            *(ConfigRecord(topic_id, key, own[key]) for key in sorted(own)),
        ]

    def add_partitions(
        self,
        image: ClusterImage,
        name: str,
        partitions: int,
        *,
        assignments: Assignments = (),
        start: int = 0,
    ) -> list[MetadataRecord]:
        """Records that widen a topic to `partitions` partitions. Raises `ApiError`.

        Placement goes on where that of the topic's partitions has ended, if its brokers are there.
        `assignments` are those of the new partitions.
        """
        topic = changeable_topic(image, name)
        count = topic.partition_count
        self._check_partitions(image, partitions, more=partitions - count)
        if partitions <= count:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {name!r} has {count} partitions and {partitions} were asked for; the "
                "number can only grow",
            )
        numbers = range(count, partitions)
        if assignments and len(assignments) != len(numbers):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"There are {len(numbers)} new partitions and assignments for {len(assignments)}",
            )
        turn = turn_of([*image.brokers.values()], topic.partitions[0].replicas[0])
        start = start if turn is None else turn
        placed = _placed(image, numbers, topic.replication_factor, start, assignments)
        return _new_partitions(image, topic.topic_id, numbers, placed)

    def change_config(
        self, image: ClusterImage, name: str, changes: Mapping[str, str | None]
    ) -> list[MetadataRecord]:
        """Records that change a topic's settings, all or none. Raises `ApiError`.

        A setting that decides about leaders and eligible replicas changes these as well.
        """
        topic = changeable_topic(image, name)
        changed = TopicConfig(topic.configs, self._defaults.configs).changed(changes)
        own = self._own(changed, topic.replication_factor)
        records: list[MetadataRecord] = [
            ConfigRecord(topic.topic_id, key, own.get(key))
            for key in sorted(own.keys() | topic.configs.keys())
            if own.get(key) != topic.configs.get(key)
        ]
        if any(own.get(key) != topic.configs.get(key) for key in (MIN_ISR, UNCLEAN_ELECTION)):
            after = preview(image, records)
            records += on_topic_settings(after, self._defaults.configs, after.topics[name])
        return records

    def delete_topic(self, image: ClusterImage, name: str) -> list[MetadataRecord]:
        """Records that delete a topic. Raises `ApiError`."""
        return self.remove_topic(changeable_topic(image, name).topic_id)

    def remove_topic(self, topic_id: uuid.UUID) -> list[MetadataRecord]:
        """Records that remove a topic which exists."""
        return [RemoveTopicRecord(topic_id)]

    def _check_partitions(self, image: ClusterImage, partitions: int, *, more: int) -> None:
        most = self._defaults.partitions_max
        if not 1 <= partitions <= most:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"A topic has 1 to {most} partitions, not {partitions}",
            )
        held = image.partition_count
        if held + more > most:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The broker has {held} partitions and may have {most}, so {more} more are too "
                "many; delete topics, or raise partitions_max in the broker's configuration",
            )

    def _own(self, own: Mapping[str, str], replication_factor: int) -> dict[str, str]:
        """The settings of a topic that are written down. Raises `ApiError`."""
        defaults = self._defaults.configs
        written = with_shared_settings(own, defaults, replication_factor=replication_factor)
        wanted = TopicConfig(written, defaults).number(MIN_ISR)
        if wanted > replication_factor:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_ISR} is {wanted} and there are {replication_factor} replica(s); "
                "no acks=all write could ever be answered",
            )
        return written


def changeable_topic(image: ClusterImage, name: str) -> Topic:
    """The topic of that name, if a client may change it. Raises `ApiError`."""
    topic = image.topic(name)
    if name.startswith(INTERNAL_TOPIC_PREFIX):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic {name!r} belongs to the broker and cannot be changed by a client",
        )
    return topic


def _check_new_name(image: ClusterImage, name: str, *, is_internal: bool) -> None:
    check_topic_name(name)
    if name.startswith(INTERNAL_TOPIC_PREFIX) and not is_internal:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic names that begin with {INTERNAL_TOPIC_PREFIX} belong to the broker; "
            f"{name!r} cannot be created by a client",
        )
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} exists already")


def _check_replication_factor(
    brokers: Sequence[BrokerRegistration], replication_factor: int
) -> None:
    if not 1 <= replication_factor <= len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"A replication factor of {replication_factor} with {len(brokers)} broker(s); it is at "
            "least 1 and at most the number of brokers",
        )
    if not any(broker.is_active for broker in brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"None of the {len(brokers)} broker(s) is in service; try again in a moment",
        )


def _check_no_counts(partitions: int, replication_factor: int) -> None:
    if partitions != -1 or replication_factor != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"There are assignments, and also {partitions} partitions and a replication factor of "
            f"{replication_factor}; these follow from the assignments, so say -1",
        )


def _placed(
    image: ClusterImage, numbers: range, factor: int, start: int, assignments: Assignments
) -> Assignments:
    """The replicas of new partitions. Raises `ApiError`."""
    if assignments:
        check_assignments(image, assignments, factor=factor)
        return assignments
    brokers = [*image.brokers.values()]
    _check_replication_factor(brokers, factor)
    return place(brokers, numbers, replication_factor=factor, start=start)


def _new_partitions(
    image: ClusterImage, topic_id: uuid.UUID, numbers: range, placed: Assignments
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for number, replicas in zip(numbers, placed, strict=True):
        isr = tuple(replica for replica in replicas if image.brokers[replica].is_active)
        records.append(
            PartitionRecord(
                topic_id,
                number,
                replicas=replicas,
                isr=isr,
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directory_ids=(UNASSIGNED_DIRECTORY,) * len(replicas),
            )
        )
    return records
