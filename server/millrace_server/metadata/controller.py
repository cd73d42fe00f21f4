"""The controller: which changes of the metadata are allowed, and the records that make them.

A pure function of an image and a request: it returns records and changes nothing. The caller
appends the records, waits until they are committed, and replays them. Random numbers, ids and the
values of a broker's environment come in with the request.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    LEADER_UNCHANGED,
    UNASSIGNED_DIRECTORY,
    BrokerRegistrationChangeRecord,
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata.delta import FEATURE_LEVEL, Delta
from millrace_server.metadata.image import BrokerRegistration, ClusterImage, Topic
from millrace_server.metadata.placement import place
from millrace_server.topic_config import (
    INTERNAL_TOPIC_PREFIX,
    TopicConfig,
    check_topic_name,
)

PRODUCER_ID_BLOCK = 1000
"""Producer ids of one block; a restart wastes at most a block."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a request that says -1 gets, and the settings under a topic's own."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    partitions_max: int = 4_000
    """Partitions of all topics together, that clients may make a broker open."""


@dataclass(frozen=True, slots=True)
class BrokerStart:
    """What a broker says of itself when it starts."""

    broker_id: int
    incarnation_id: uuid.UUID
    host: str
    port: int
    rack: str | None
    directory_id: uuid.UUID


def preview(image: ClusterImage, records: Iterable[MetadataRecord]) -> ClusterImage:
    """The image that the records would make, for a request that only validates."""
    delta = Delta(image)
    for record in records:
        delta.replay(record)
    return delta.image(image.end_offset)


def register_broker(
    image: ClusterImage, start: BrokerStart, *, cluster_id: uuid.UUID
) -> list[MetadataRecord]:
    """Records that register a broker which starts, and unfence it. Raises `ApiError`.

    The first broker makes the cluster, with `cluster_id`. The broker's epoch is the offset of its
    registration. A broker that follows another's log is unfenced when it has caught up; one that
    holds the log has caught up.
    """
    if image.brokers and start.broker_id not in image.brokers:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The data directory belongs to broker {known} and node_id is {start.broker_id}; set "
            "node_id to that of the data directory, or use another data directory",
        )
    first: list[MetadataRecord] = []
    if image.cluster_id is None:
        first.append(ClusterRecord(cluster_id, FEATURE_LEVEL))
    epoch = image.end_offset + len(first)
    return [
        *first,
        RegisterBrokerRecord(
            start.broker_id,
            epoch,
            start.incarnation_id,
            start.host,
            start.port,
            start.rack,
            (start.directory_id,),
        ),
        BrokerRegistrationChangeRecord(start.broker_id, epoch, is_fenced=False),
    ]


def assign_directories(
    image: ClusterImage,
    broker_id: int,
    directory_id: uuid.UUID,
    created: Iterable[tuple[uuid.UUID, int]],
) -> list[MetadataRecord]:
    """Records that say in which directory a broker has created its replicas (KIP-858).

    `created` are topic ids and partition numbers. Topics that are deleted meanwhile are left out.
    """
    records: list[MetadataRecord] = []
    for topic_id, number in created:
        topic = image.topic_by_id(topic_id)
        if topic is None or topic.partitions[number].is_created(broker_id):
            continue
        partition = topic.partitions[number]
        directories = tuple(
            directory_id if replica == broker_id else known
            for replica, known in zip(partition.replicas, partition.directory_ids, strict=True)
        )
        records.append(
            PartitionChangeRecord(topic_id, number, None, None, LEADER_UNCHANGED, directories)
        )
    return records


def reserve_producer_ids(
    image: ClusterImage, broker_id: int, *, at_least: int = 0
) -> list[MetadataRecord]:
    """Records that give a broker the next block of producer ids, from `at_least` on."""
    first = max(image.next_producer_id, at_least)
    epoch = image.brokers[broker_id].epoch
    return [ProducerIdsRecord(broker_id, epoch, first + PRODUCER_ID_BLOCK)]


class Controller:
    """The rules of change for topics, under the defaults of this broker's configuration."""

    def __init__(self, defaults: TopicDefaults) -> None:
        self._defaults = defaults

    def create_topic(
        self,
        image: ClusterImage,
        name: str,
        *,
        topic_id: uuid.UUID,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str | None],
        start: int = 0,
        is_internal: bool = False,
    ) -> list[MetadataRecord]:
        """Records that create a topic; -1 for a count means the default. Raises `ApiError`.

        `start` is random and says where placement begins; `is_internal` is for topics that the
        broker creates for itself.
        """
        _check_new_name(image, name, is_internal=is_internal)
        partitions = self._defaults.partitions if partitions == -1 else partitions
        self._check_partitions(image, partitions, more=partitions)
        if replication_factor == -1:
            replication_factor = self._defaults.replication_factor
        brokers = _available(image)
        if not 1 <= replication_factor <= len(brokers):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"A replication factor of {replication_factor} with {len(brokers)} "
                "broker(s); it is at least 1 and at most the number of brokers",
            )
        own = TopicConfig({}, self._defaults.configs).changed(configs)
        self._check_min_isr(TopicConfig(own, self._defaults.configs), replication_factor)
        return [
            TopicRecord(name, topic_id),
            *_new_partitions(brokers, topic_id, range(partitions), replication_factor, start),
            *(ConfigRecord(topic_id, key, own[key]) for key in sorted(own)),
        ]

    def add_partitions(
        self, image: ClusterImage, name: str, partitions: int, *, start: int = 0
    ) -> list[MetadataRecord]:
        """Records that widen a topic to `partitions` partitions. Raises `ApiError`."""
        topic = changeable_topic(image, name)
        count = topic.partition_count
        self._check_partitions(image, partitions, more=partitions - count)
        if partitions <= count:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {name!r} has {count} partitions and {partitions} were asked for; the "
                "number can only grow",
            )
        brokers = _available(image)
        factor = topic.replication_factor
        if factor > len(brokers):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Topic {name!r} has {factor} replicas of each partition and {len(brokers)} "
                "broker(s) are available; start the others first",
            )
        return _new_partitions(brokers, topic.topic_id, range(count, partitions), factor, start)

    def change_config(
        self, image: ClusterImage, name: str, changes: Mapping[str, str | None]
    ) -> list[MetadataRecord]:
        """Records that change a topic's settings, all or none. Raises `ApiError`."""
        topic = changeable_topic(image, name)
        own = TopicConfig(topic.configs, self._defaults.configs).changed(changes)
        self._check_min_isr(TopicConfig(own, self._defaults.configs), topic.replication_factor)
        return [
            ConfigRecord(topic.topic_id, key, own.get(key))
            for key in sorted(own.keys() | topic.configs.keys())
            if own.get(key) != topic.configs.get(key)
        ]

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

    def _check_min_isr(self, config: TopicConfig, replication_factor: int) -> None:
        wanted = config.number("min.insync.replicas")
        if wanted > replication_factor:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"min.insync.replicas is {wanted} and there are {replication_factor} replica(s); "
                "no acks=all write could ever be answered",
            )


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


def _available(image: ClusterImage) -> list[BrokerRegistration]:
    return [broker for broker in image.brokers.values() if not broker.is_fenced]


def _new_partitions(
    brokers: list[BrokerRegistration], topic_id: uuid.UUID, numbers: range, factor: int, start: int
) -> list[MetadataRecord]:
    placed = place(brokers, numbers, replication_factor=factor, start=start)
    return [
        PartitionRecord(
            topic_id,
            number,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directory_ids=(UNASSIGNED_DIRECTORY,) * factor,
        )
        for number, replicas in zip(numbers, placed, strict=True)
    ]
