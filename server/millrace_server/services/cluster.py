"""The cluster as a client needs it: brokers, topics, and where their partitions are."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import NO_LEADER
from millrace_server.api_error import ApiError
from millrace_server.broker_settings import BrokerSetting, broker_settings
from millrace_server.config import BrokerConfig
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.limits import Limits
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import BrokerRegistration, Topic
from millrace_server.topic_config import INTERNAL_TOPIC_PREFIX

_NO_ID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker and where clients find it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterService:
    """Answers from the image. `address` is where clients find this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        cache: MetadataCache,
        metadata: ClusterMetadata,
    ) -> None:
        self._config = config
        self._cache = cache
        self._metadata = metadata
        self.address: tuple[str, int] = config.advertised_address or config.listen_address

    @property
    def limits(self) -> Limits:
        """What a client may send to this broker."""
        return self._config.limits

    def settings(self, node_id: int) -> list[BrokerSetting]:
        """Every setting of this broker; raises `ApiError` for another one's id, -1 is this one."""
        if node_id not in (-1, self.node_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"This is broker {self.node_id}, which does not know the settings of broker "
                f"{node_id}; ask that one",
            )
        return list(broker_settings(self._config))

    @property
    def cluster_id(self) -> str:
        return str(self._cache.image.cluster_id)

    @property
    def node_id(self) -> int:
        """The id of this broker."""
        return self._config.node_id

    @property
    def controller_id(self) -> int:
        """The id of the broker that is the active controller, -1 when none is known."""
        leader_id = self._metadata.leader_id
        return NO_LEADER if leader_id is None else leader_id

    @property
    def brokers(self) -> Sequence[BrokerAddress]:
        """Every broker that is in service."""
        return [self._address_of(b) for b in self._cache.image.brokers.values() if not b.is_fenced]

    @property
    def fenced_brokers(self) -> Sequence[BrokerAddress]:
        """Every registered broker that is not in service."""
        return [self._address_of(b) for b in self._cache.image.brokers.values() if b.is_fenced]

    @property
    def topic_names(self) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(self._cache.image.topics)

    def topic(self, name: str) -> Topic:
        """A topic. Raises `ApiError` when there is none."""
        return self._cache.image.topic(name)

    @property
    def creates_topics(self) -> bool:
        """Whether a topic is created when a client that allows it asks for it."""
        return self._config.auto_create_topics

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic with an id, None when there is none."""
        return self._cache.image.topic_by_id(topic_id)

    def topic_id_of(self, name: str) -> uuid.UUID:
        """The id of a topic, zero when there is no such topic."""
        topic = self._cache.image.topics.get(name)
        return _NO_ID if topic is None else topic.topic_id

    def is_internal(self, name: str) -> bool:
        """Whether a topic is the broker's own."""
        return name.startswith(INTERNAL_TOPIC_PREFIX)

    def partition_count(self, name: str) -> int:
        """The number of partitions of a topic, 0 when there is no such topic."""
        topic = self._cache.image.topics.get(name)
        return 0 if topic is None else topic.partition_count

    def unknown_partition(self, topic: str, number: int) -> ApiError | None:
        """The error of a partition that the cluster does not have; None when it has it."""
        try:
            known = self.topic(topic)
        except ApiError as error:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message)
        if 0 <= number < known.partition_count:
            return None
        return ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic {topic!r} has no partition {number}; it has 0 to {known.partition_count - 1}",
        )

    def _address_of(self, broker: BrokerRegistration) -> BrokerAddress:
        # The address of this broker is known before its registration is durable.
        if broker.broker_id == self.node_id:
            return BrokerAddress(self.node_id, *self.address, broker.rack)
        return BrokerAddress(broker.broker_id, broker.host, broker.port, broker.rack)
