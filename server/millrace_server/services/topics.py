"""Topics: create, widen, configure, delete, describe.

Plain values in and out, over the rules of `metadata.topics`, the commits of the active
controller and the image.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millrace_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import NO_LEADER, MetadataRecord
from millrace_server.api_error import ApiError
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.applier import NotApplied
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.environment.seams import Environment
from millrace_server.logs import get_logger
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.metadata.assignments import Assignments
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage, Topic
from millrace_server.metadata.topics import TopicChanges
from millrace_server.partitions.partition_table import NotOpenYet, PartitionTable
from millrace_server.services.client_throttle import ClientThrottle
from millrace_server.services.forwarded_topics import ForwardedTopics
from millrace_server.services.request_context import RequestContext
from millrace_server.topic_config import TopicConfig

log = get_logger("millrace.topics")
PLACEMENT_STARTS = 1 << 16
"""Placement begins at one of so many places; more than there are brokers."""

CHUNK_RECORDS = 100
"""Replayed in one chunk for a change that is only looked at, some 300 us."""
REGISTRATION_WAIT_MS = 5_000
"""How long a topic with the default number of replicas waits for brokers that start first."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition as clients see it: `leader` is -1 and `code` is set while it is offline."""

    code: ErrorCode
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Topics:
    """The topic service."""

    def __init__(
        self,
        *,
        env: Environment,
        broker_id: int,
        partitions: PartitionTable,
        active: ActiveController,
        rules: TopicChanges,
        cache: MetadataCache,
        defaults: Mapping[str, str],
        controller: ControllerCalls,
        forwarded: ForwardedTopics,
        throttle: ClientThrottle,
        scheduler: FairScheduler,
    ) -> None:
        self._rng = env.rng
        self._controller = controller
        self._forwarded = forwarded
        self._broker_id = broker_id
        self._partitions = partitions
        self._active = active
        self._rules = rules
        self._cache = cache
        self._defaults = defaults
        self._throttle = throttle
        self._scheduler = scheduler

    def config(self, context: RequestContext, name: str) -> TopicConfig:
        """The settings in force for a topic. Raises `ApiError`."""
        context.check_topic(Operation.DESCRIBE_CONFIGS, name)
        return self.config_of(self._cache.image.topic(name))

    def own_config(self, context: RequestContext, name: str) -> TopicConfig:
        """The settings of a topic that the client is about to change; one that is not there has
        none of its own. Raises `ApiError`."""
        context.check_topic(Operation.ALTER_CONFIGS, name)
        topic = self._cache.image.topics.get(name)
        return TopicConfig({}, {}) if topic is None else self.config_of(topic)

    def config_of(self, topic: Topic) -> TopicConfig:
        """The settings in force for a topic, which may be one that is only to be created."""
        return TopicConfig(topic.configs, self._defaults)

    def partition_state(self, topic: Topic, number: int) -> PartitionState:
        """What the image says of a partition, and whether its leader here serves it."""
        known = topic.partitions[number]
        code = ErrorCode.NONE if known.leader != NO_LEADER else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if known.leader == self._broker_id:
            offline = self._partitions.offline(topic.name, number)
            code = code if offline is None else offline.code
        if code is not ErrorCode.NONE:
            return PartitionState(code, NO_LEADER, -1, known.replicas, ())
        return PartitionState(code, known.leader, known.leader_epoch, known.replicas, known.isr)

    def leader(self, topic: str, number: int) -> tuple[int, int] | None:
        """The leader of a partition and its epoch; None where there is none."""
        known = self._cache.image.topics.get(topic)
        if known is None or not 0 <= number < known.partition_count:
            return None
        partition = known.partitions[number]
        if partition.leader == NO_LEADER:
            return None
        return partition.leader, partition.leader_epoch

    async def create(
        self,
        context: RequestContext,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        assignments: Assignments = (),
        validate_only: bool = False,
        is_internal: bool = False,
    ) -> Topic:
        """Creates a topic, or says what it would be like. Raises `ApiError`.

        A disk that refuses the new partitions, because it is full for example, makes the controller
        take the topic back: the answer is the disk's error, and the caller can try again. Only when
        that cannot be committed either, the topic stays, offline, until the disk takes it.
        """
        if not context.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            context.check_topic(Operation.CREATE, name)
        if not validate_only and name not in self._cache.image.topics:
            wanted = self._rules.new_partitions(partitions, assignments)
            self._throttle.check_mutation(context, max(wanted, 0))
        if not (validate_only or self._controller.is_here):
            return await self._forwarded.create(
                name, partitions, replication_factor, configs or {}, assignments
            )
        if replication_factor == -1 and not assignments:
            # The number of replicas stays, so that of a cluster that starts must not be too low.
            expected = self._rules.brokers_expected(self._cache.image)
            await self._active.registered(expected, timeout_ms=REGISTRATION_WAIT_MS)
        topic_id = uuid.UUID(int=self._rng.getrandbits(128), version=4)
        start = self._rng.randrange(PLACEMENT_STARTS)

        def decide(image: ClusterImage) -> Sequence[MetadataRecord]:
            return self._rules.create_topic(
                image,
                name,
                topic_id=topic_id,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs or {},
                assignments=assignments,
                start=start,
                is_internal=is_internal,
            )

        def undo(image: ClusterImage) -> Sequence[MetadataRecord]:
            return self._rules.remove_topic(topic_id)

        image = await self._change(decide, validate_only=validate_only, undo=undo)
        topic = image.topics[name]
        if not validate_only:
            log.info("topic created", topic=name, partitions=topic.partition_count)
        return topic

    async def add_partitions(
        self,
        context: RequestContext,
        name: str,
        partitions: int,
        *,
        assignments: Assignments = (),
        validate_only: bool = False,
    ) -> None:
        """Widens a topic to `partitions` partitions. Raises `ApiError`.

        New partitions that the disk refuses stay, offline, until the disk takes them: a topic
        cannot become narrower.
        """
        context.check_topic(Operation.ALTER, name)
        if not validate_only:
            topic = self._cache.image.topics.get(name)
            known = partitions if topic is None else topic.partition_count
            self._throttle.check_mutation(context, max(partitions - known, 0))
        if not (validate_only or self._controller.is_here):
            await self._forwarded.add_partitions(name, partitions, assignments)
            return
        start = self._rng.randrange(PLACEMENT_STARTS)
        try:
            await self._change(
                lambda image: self._rules.add_partitions(
                    image, name, partitions, assignments=assignments, start=start
                ),
                validate_only=validate_only,
            )
        except NotApplied as refused:
            raise ApiError(
                refused.code,
                f"Topic {name!r} has {partitions} partitions, and the new ones are offline until "
                f"the disk takes them: {refused.message}",
            ) from refused
        if not validate_only:
            log.info("partitions added", topic=name, partitions=partitions)

    async def change_config(
        self,
        context: RequestContext,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Changes a topic's settings, all or none; None goes back to the default."""
        context.check_topic(Operation.ALTER_CONFIGS, name)
        if not (validate_only or self._controller.is_here):
            await self._forwarded.change_config(name, changes)
            return
        await self._change(
            lambda image: self._rules.change_config(image, name, changes),
            validate_only=validate_only,
        )
        if not validate_only:
            log.info("topic settings changed", topic=name, changes=dict(changes))

    async def delete(self, context: RequestContext, name: str) -> None:
        """Deletes a topic with its records. Raises `ApiError`."""
        context.check_topic(Operation.DELETE, name)
        topic = self._cache.image.topics.get(name)
        if topic is not None:
            self._throttle.check_mutation(context, topic.partition_count)
        if not self._controller.is_here:
            await self._forwarded.delete(name)
            return

        def decide(image: ClusterImage) -> Sequence[MetadataRecord]:
            records = self._rules.delete_topic(image, name)
            self._refuse_unopened(image.topics[name])
            return records

        await self._active.change(decide)
        log.info("topic deleted", topic=name)

    async def _change(
        self,
        decide: Callable[[ClusterImage], Sequence[MetadataRecord]],
        *,
        validate_only: bool,
        undo: Callable[[ClusterImage], Sequence[MetadataRecord]] | None = None,
    ) -> ClusterImage:
        if validate_only:
            return await self._previewed(decide)
        return await self._active.change(decide, undo=undo)

    async def _previewed(
        self, decide: Callable[[ClusterImage], Sequence[MetadataRecord]]
    ) -> ClusterImage:
        """The image that a change would make, in chunks: a request may validate many topics, and
        each may have thousands of partitions."""
        await self._scheduler.yield_()
        delta = Delta(self._cache.image)
        for number, record in enumerate(decide(delta.before), 1):
            delta.replay(record)
            if not number % CHUNK_RECORDS:
                await self._scheduler.yield_()
        return delta.image(delta.before.end_offset)

    def _refuse_unopened(self, topic: Topic) -> None:
        """Raises `ApiError` while a start looks through the files that a deletion would remove."""
        for number in range(topic.partition_count):
            refused = self._partitions.offline(topic.name, number)
            if isinstance(refused, NotOpenYet):
                raise refused
