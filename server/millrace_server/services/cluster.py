"""The cluster as a client needs it: brokers, topics, and where their partitions are."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from millrace_protocol.acls import Operation, ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.broker_lifecycle import ClientListener
from millrace_protocol.metadata_records import NO_LEADER
from millrace_server.api_error import ApiError
from millrace_server.broker_settings import BrokerSetting, broker_settings
from millrace_server.config import BrokerConfig
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.limits import Limits
from millrace_server.listeners import Address
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import BrokerRegistration, Topic
from millrace_server.services.request_context import RequestContext
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
    """Answers from the image. `addresses` are where clients find this broker, by listener."""

    def __init__(
        self,
        config: BrokerConfig,
        cache: MetadataCache,
        metadata: ClusterMetadata,
    ) -> None:
        self._config = config
        self._cache = cache
        self._metadata = metadata
        self.addresses: dict[str, Address] = {
            each.name: each.advertised or each.address for each in config.listeners
        }

    def reload(self, config: BrokerConfig) -> None:
        """Takes over the settings that clients are told."""
        self._config = config

    @property
    def limits(self) -> Limits:
        """What a client may send to this broker."""
        return self._config.limits

    def settings(self, context: RequestContext, node_id: int) -> list[BrokerSetting]:
        """Every setting of this broker; raises `ApiError` for another one's id, -1 is this one."""
        context.check_cluster(Operation.DESCRIBE_CONFIGS)
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
    def client_listeners(self) -> tuple[ClientListener, ...]:
        """Those of this broker, as it registers them."""
        return tuple(
            ClientListener(each.name, *self.addresses[each.name], each.is_tls)
            for each in self._config.listeners
        )

    def brokers(self, listener: str) -> list[BrokerAddress]:
        """Every broker that is in service and has a listener of that name, at its address."""
        brokers = self._cache.image.brokers.values()
        return [*self._addresses((each for each in brokers if not each.is_fenced), listener)]

    def fenced_brokers(self, listener: str) -> list[BrokerAddress]:
        """Every registered broker with that listener that is not in service."""
        brokers = self._cache.image.brokers.values()
        return [*self._addresses((each for each in brokers if each.is_fenced), listener)]

    @property
    def broker_ids(self) -> Set[int]:
        """The ids of all registered brokers, in service or not."""
        return self._cache.image.brokers.keys()

    def visible_topics(self, context: RequestContext) -> list[str]:
        """The names of all topics that the client may know of, sorted."""
        names = sorted(self._cache.image.topics)
        if context.authorizer is None:
            return names
        return [n for n in names if context.allows(Operation.DESCRIBE, ResourceType.TOPIC, n)]

    def topic(self, context: RequestContext, name: str) -> Topic:
        """A topic. Raises `ApiError` when there is none."""
        context.check_topic(Operation.DESCRIBE, name)
        return self._cache.image.topic(name)

    @property
    def creates_topics(self) -> bool:
        """Whether a topic is created when a client that allows it asks for it."""
        return self._config.auto_create_topics

    def topic_by_id(self, context: RequestContext, topic_id: uuid.UUID) -> Topic | None:
        """The topic with an id; None when there is none, or none that the client may know of."""
        topic = self._cache.image.topic_by_id(topic_id)
        if topic is None or context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            return topic
        return None

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

    def unknown_partition(
        self, context: RequestContext, topic: str, number: int
    ) -> ApiError | None:
        """The error of a partition that the cluster does not have; None when it has it."""
        try:
            known = self.topic(context, topic)
        except ApiError as error:
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return error
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message)
        if 0 <= number < known.partition_count:
            return None
        return ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic {topic!r} has no partition {number}; it has 0 to {known.partition_count - 1}",
        )

    def _addresses(
        self, brokers: Iterable[BrokerRegistration], listener: str
    ) -> Iterator[BrokerAddress]:
        for broker in brokers:
            if broker.broker_id == self.node_id:
                # Known before the registration is durable.
                if listener in self.addresses:
                    yield BrokerAddress(self.node_id, *self.addresses[listener], broker.rack)
                continue
            for each in broker.listeners:
                if each.name == listener:
                    yield BrokerAddress(broker.broker_id, each.host, each.port, broker.rack)
