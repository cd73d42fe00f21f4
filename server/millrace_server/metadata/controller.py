"""The controller: which changes of the metadata are allowed, and the records that make them.

A pure function of the image and a request: it returns records and changes nothing itself. The
shell appends them, waits until they are durable, replays them, and only then answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError, quoted
from millrace_server.metadata.image import ClusterImage, Topic
from millrace_server.metadata.records import (
    MetadataRecord,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from millrace_server.topic_config import (
    INTERNAL_TOPIC_PREFIX,
    TopicConfig,
    check_topic_name,
)

PRODUCER_ID_BLOCK = 1000
"""Producer ids reserved with one metadata record; a restart wastes at most a block."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a request that says -1 gets, and the settings under a topic's own."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    partitions_max: int = 4_000
    """Partitions of all topics together, that clients may make a broker open."""


class Controller:
    """The rules of change, over an image that it reads and never writes."""

    def __init__(self, image: ClusterImage, defaults: TopicDefaults, *, broker_count: int) -> None:
        self._image = image
        self._defaults = defaults
        self._broker_count = broker_count

    def topic(self, name: str) -> Topic:
        """The topic of that name. Raises `ApiError`."""
        topic = self._image.topics.get(name)
        if topic is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no topic {quoted(name)}; create it first or check the name",
            )
        return topic

    def create_topic(
        self,
        name: str,
        *,
        topic_id: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str | None],
        is_internal: bool = False,
    ) -> TopicCreated:
        """The record that creates a topic; -1 for a count means the default. Raises `ApiError`.

        `is_internal` is for those that the broker makes for itself.
        """
        check_topic_name(name)
        if name.startswith(INTERNAL_TOPIC_PREFIX) and not is_internal:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic names that begin with {INTERNAL_TOPIC_PREFIX} belong to the broker; "
                f"{name!r} cannot be created by a client",
            )
        if name in self._image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} exists already")
        partitions = self._defaults.partitions if partitions == -1 else partitions
        self._check_partitions(partitions, more=partitions)
        if replication_factor == -1:
            replication_factor = self._defaults.replication_factor
        if not 1 <= replication_factor <= self._broker_count:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"A replication factor of {replication_factor} with {self._broker_count} "
                "broker(s); it is at least 1 and at most the number of brokers",
            )
        config = TopicConfig({}, self._defaults.configs)
        own = config.changed(configs)
        self._check_min_isr(TopicConfig(own, self._defaults.configs), replication_factor)
        return TopicCreated(name, topic_id, partitions, replication_factor, own)

    def add_partitions(self, name: str, partitions: int) -> list[MetadataRecord]:
        """Records that widen a topic to `partitions` partitions. Raises `ApiError`."""
        topic = self._changeable_topic(name)
        self._check_partitions(partitions, more=partitions - topic.partitions)
        if partitions <= topic.partitions:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {name!r} has {topic.partitions} partitions and {partitions} were asked "
                "for; the number can only grow",
            )
        return [PartitionsAdded(topic.topic_id, partitions)]

    def change_config(self, name: str, changes: Mapping[str, str | None]) -> list[MetadataRecord]:
        """Records that change a topic's settings, all or none. Raises `ApiError`."""
        topic = self._changeable_topic(name)
        own = TopicConfig(topic.configs, self._defaults.configs).changed(changes)
        self._check_min_isr(TopicConfig(own, self._defaults.configs), topic.replication_factor)
        if own == topic.configs:
            return []
        return [TopicConfigChanged(topic.topic_id, own)]

    def delete_topic(self, name: str) -> list[MetadataRecord]:
        """Records that delete a topic. Raises `ApiError`."""
        return [TopicDeleted(self._changeable_topic(name).topic_id)]

    def reserve_producer_ids(self, *, at_least: int = 0) -> list[MetadataRecord]:
        """Records that reserve the next block of producer ids, which begins at `at_least`."""
        first = max(self._image.next_producer_id, at_least)
        return [ProducerIdsReserved(first + PRODUCER_ID_BLOCK)]

    def _changeable_topic(self, name: str) -> Topic:
        topic = self.topic(name)
        if name.startswith(INTERNAL_TOPIC_PREFIX):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic {name!r} belongs to the broker and cannot be changed by a client",
            )
        return topic

    def _check_partitions(self, partitions: int, *, more: int) -> None:
        most = self._defaults.partitions_max
        if not 1 <= partitions <= most:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"A topic has 1 to {most} partitions, not {partitions}",
            )
        held = sum(topic.partitions for topic in self._image.topics.values())
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
