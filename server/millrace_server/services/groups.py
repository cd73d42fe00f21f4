"""Consumer groups: finds the coordinator of each, asks it, and owns the topic of their state.

The coordinator of a group is the leader of the partition of `__consumer_offsets` that its name
hashes to. The topic is created when the first coordinator is looked for. The rules of groups are in
`group`, loading and appending in `coordinator`. Kafka's `GroupCoordinatorService`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from millrace_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.coordinator.runtime import CoordinatorRuntime
from millrace_server.coordinator.shard import Moment, Token
from millrace_server.environment.seams import Environment
from millrace_server.group.coordinator import GroupCoordinatorShard
from millrace_server.group.memory_quota import MemoryQuota
from millrace_server.group.records import GROUP_RECORD_SERDE, OFFSETS_TOPIC, partition_for_group
from millrace_server.group.requests import (
    DeleteGroupResult,
    DescribedGroup,
    FetchedOffset,
    GroupEffects,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListedGroup,
    MemberIdRequired,
    OffsetCommit,
    OffsetsResult,
    OffsetToCommit,
    PartitionResult,
    SyncGroup,
    SyncGroupResult,
    TopicPartition,
    check_group_id,
)
from millrace_server.group.states import GroupState
from millrace_server.group_config import GroupConfig
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import PartitionRegistration
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.services.cluster import BrokerAddress, ClusterService
from millrace_server.services.group_lag import GroupLag, owners_of
from millrace_server.services.request_context import THIS_BROKER, RequestContext
from millrace_server.services.topics import Topics

OFFSETS_TOPIC_SETTINGS = {"cleanup.policy": "compact"}
FIND_WAIT_S = 1.0
"""FindCoordinator waits this long for the loads that it starts: those of a new topic are empty and
end at once, so the first member need not ask again."""

V = TypeVar("V")
Event = Callable[[GroupCoordinatorShard, Token, Moment], GroupEffects]


class FoundCoordinator(NamedTuple):
    """The broker that coordinates a group, or why there is none."""

    group_id: str
    broker: BrokerAddress | None
    error: ApiError | None


class GroupCoordinatorService:
    """The group apis in plain values. Every method about groups raises `ApiError`."""

    def __init__(
        self,
        *,
        env: Environment,
        scheduler: FairScheduler,
        partitions: PartitionTable,
        topics: Topics,
        cluster: ClusterService,
        cache: MetadataCache,
        config: GroupConfig,
        offsets_partitions: int,
    ) -> None:
        self._scheduler = scheduler
        self._partitions = partitions
        self._topics = topics
        self._cluster = cluster
        self._cache = cache
        self._offsets_partitions = offsets_partitions
        self._creating = asyncio.Lock()
        quota = MemoryQuota(config)
        self._runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            new_shard=lambda: GroupCoordinatorShard(
                config, make_id=lambda: f"{env.rng.getrandbits(128):032x}", quota=quota
            ),
            serde=GROUP_RECORD_SERDE,
            env=env,
            scheduler=scheduler,
        )

    async def start(self, wait_ms: int) -> None:
        """Loads the coordinators of this broker; returns when all are loaded, or after `wait_ms`.

        The requests of a group get COORDINATOR_LOAD_IN_PROGRESS until its coordinator is loaded.
        """
        await self._load_all(timeout_s=wait_ms / 1000)

    async def stop(self) -> None:
        """Ends every coordinator; none appends after that."""
        self.answer_waiting()
        await self._runtime.wait_closed()

    def answer_waiting(self) -> None:
        """Ends every coordinator: pending requests get COORDINATOR_NOT_AVAILABLE."""
        self._runtime.close()

    async def find_coordinators(
        self, context: RequestContext, groups: Sequence[str]
    ) -> list[FoundCoordinator]:
        """The coordinator of each group; creates the offsets topic if there is none."""
        unavailable = None
        try:
            self._runtime.check_running()
            await self._create_topic()
            await self._load_all(timeout_s=FIND_WAIT_S)
        except ApiError as error:
            unavailable = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        return [self._find(context, group, unavailable) for group in groups]

    async def join(self, context: RequestContext, request: JoinGroup) -> JoinGroupResult:
        """Returns when the generation begins; raises `MemberIdRequired` for a new member."""
        context.check_group(Operation.READ, request.group_id)
        asked = replace(request, principal=context.principal)
        result = await self._write(
            request.group_id, lambda shard, token, moment: shard.join(token, asked, moment)
        )
        if isinstance(result, MemberIdRequired):
            # Not `result`: its traceback would keep this frame, which keeps `result`.
            raise MemberIdRequired(request.group_id, result.member_id)
        return _expect(result, JoinGroupResult)

    async def sync(self, context: RequestContext, request: SyncGroup) -> SyncGroupResult:
        """Returns when the leader's assignment is durable."""
        context.check_group(Operation.READ, request.group_id)
        try:
            result = await self._write(
                request.group_id, lambda shard, token, moment: shard.sync(token, request, moment)
            )
        except ApiError as error:
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            # As in Kafka: a generation is lost with the old coordinator, unless it is durable.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, error.message) from None
        return _expect(result, SyncGroupResult)

    def heartbeat(self, context: RequestContext, request: Heartbeat) -> None:
        """Raises `ApiError` when the member has to act."""
        context.check_group(Operation.READ, request.group_id)
        try:
            self._runtime.notify(
                self._number(request.group_id), lambda shard, now: shard.heartbeat(request, now)
            )
        except ApiError as error:
            # As in Kafka: no session runs during a load, and the member has nothing to do.
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise

    async def leave(self, context: RequestContext, request: LeaveGroup) -> LeaveGroupResult:
        """Each member leaves for itself."""
        context.check_group(Operation.READ, request.group_id)
        result = await self._write(
            request.group_id, lambda shard, token, moment: shard.leave(token, request, moment)
        )
        return _expect(result, LeaveGroupResult)

    async def commit(self, context: RequestContext, request: OffsetCommit) -> list[PartitionResult]:
        """Returns when the offsets are durable; partitions that do not exist get an error."""
        context.check_group(Operation.READ, request.group_id)
        unknown = {
            (each.topic, each.partition): error
            for each in request.offsets
            if (error := self._not_committable(context, each.topic, each.partition)) is not None
        }
        offsets = request.offsets
        if unknown:
            offsets = tuple(o for o in offsets if (o.topic, o.partition) not in unknown)
        asked = replace(request, offsets=offsets, principal=context.principal)
        result = await self._write(
            request.group_id, lambda shard, token, moment: shard.commit(token, asked, moment)
        )
        done = _expect(result, OffsetsResult).partitions
        return _with_refused(request.offsets, unknown, done)

    def fetch_offsets(
        self, context: RequestContext, group: str, partitions: Sequence[TopicPartition] | None
    ) -> list[FetchedOffset]:
        """The durable offsets of a group; for None all, of topics that the client may know of."""
        context.check_group(Operation.DESCRIBE, group)
        found = self._read(group, lambda shard: shard.fetch_offsets(group, partitions))
        if context.authorizer is None:
            return found
        return [*_visible(context, found, are_named=partitions is not None)]

    async def delete_offsets(
        self, context: RequestContext, group: str, partitions: Sequence[TopicPartition]
    ) -> Sequence[PartitionResult]:
        """Returns when the deletion is durable."""
        context.check_group(Operation.DELETE, group)
        refused = {
            (topic, partition): error
            for topic, partition in partitions
            if (error := _unreadable(context, topic)) is not None
        }
        allowed = [each for each in partitions if each not in refused]
        result = await self._write(
            group,
            lambda shard, token, moment: shard.delete_offsets(token, group, allowed, moment),
        )
        return _with_refused(partitions, refused, _expect(result, OffsetsResult).partitions)

    def list_groups(self, context: RequestContext, states: Iterable[str] = ()) -> list[ListedGroup]:
        """All groups that the client may know of by name, or those in these states."""
        wanted = frozenset(states)
        unknown = wanted - {state.value for state in GroupState}
        if unknown:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"There is no group state {min(unknown)!r}; the states are "
                f"{', '.join(state.value for state in GroupState)}",
            )
        sees_all = context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        found = self._runtime.read_all(GroupCoordinatorShard.list_groups)
        return sorted(
            group
            for groups in found
            for group in groups
            if (not wanted or group.state.value in wanted)
            and (sees_all or context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        )

    def states(self) -> Iterator[str]:
        """The state of each group, but for those whose coordinator is loading."""
        for groups in self._runtime.read_active(GroupCoordinatorShard.list_groups):
            yield from (group.state.value for group in groups)

    def describe(self, context: RequestContext, group: str) -> DescribedGroup:
        """A group with its members."""
        context.check_group(Operation.DESCRIBE, group)
        return self._read(group, lambda shard: shard.describe(group))

    async def delete(self, context: RequestContext, group: str) -> None:
        """Returns when the deletion of the group is durable."""
        context.check_group(Operation.DELETE, group)
        result = await self._write(
            group, lambda shard, token, moment: shard.delete_group(token, group, moment)
        )
        _expect(result, DeleteGroupResult)

    async def lag(self, context: RequestContext, group: str) -> GroupLag:
        """The lag in each partition that the group has committed for or a member has, in topics
        that the client may know of."""
        context.check_group(Operation.DESCRIBE, group)
        if OFFSETS_TOPIC not in self._cache.image.topics:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {group!r}")
        described, committed = self._read(
            group, lambda shard: (shard.describe(group), shard.image.of_group(group))
        )
        owners = await owners_of(described, self._scheduler)
        # A member may name any topic in its assignment.
        return GroupLag(
            committed,
            owners,
            self._partitions,
            sees=lambda topic: context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic),
        )

    def on_topic_deleted(self, topic: str) -> None:
        """Deletes the offsets of a topic in all groups."""
        if topic == OFFSETS_TOPIC:  # Its creation has failed and is undone.
            self._runtime.unload_all()
        else:
            self._runtime.notify_all(lambda shard, moment: shard.on_topic_deleted(topic, moment))

    def on_leader_changed(self, topic: str, number: int, known: PartitionRegistration) -> None:
        """Loads the coordinator of a partition that this broker leads now, or ends it."""
        if topic != OFFSETS_TOPIC:
            return
        if known.leader == self._cluster.node_id:
            self._load(number, known.leader_epoch)
        else:
            self._runtime.unload(number, known.leader_epoch)

    def _not_committable(self, context: RequestContext, topic: str, number: int) -> ApiError | None:
        # Who may read a topic may know whether there is a partition.
        return _unreadable(context, topic) or self._cluster.unknown_partition(
            THIS_BROKER, topic, number
        )

    def _write(self, group: str, event: Event) -> asyncio.Future[object]:
        return self._runtime.write(self._number(group), event)

    def _read(self, group: str, query: Callable[[GroupCoordinatorShard], V]) -> V:
        return self._runtime.read(self._number(group), query)

    def _number(self, group: str) -> int:
        topic = self._cache.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition_for_group(group, topic.partition_count)

    def _find(
        self, context: RequestContext, group: str, unavailable: ApiError | None
    ) -> FoundCoordinator:
        try:
            context.check_group(Operation.DESCRIBE, group)
            check_group_id(group)
        except ApiError as error:
            return FoundCoordinator(group, None, error.with_traceback(None))
        broker = None if unavailable is not None else self._leader(group, context.listener)
        if broker is not None:
            return FoundCoordinator(group, broker, None)
        none = unavailable or ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return FoundCoordinator(group, None, none)

    def _leader(self, group: str, listener: str) -> BrokerAddress | None:
        """The broker that leads the group's partition; None when none does at the moment."""
        leader = self._cache.image.topics[OFFSETS_TOPIC].partitions[self._number(group)].leader
        return next((b for b in self._cluster.brokers(listener) if b.node_id == leader), None)

    async def _create_topic(self) -> None:
        if OFFSETS_TOPIC in self._cache.image.topics:
            return
        async with self._creating:
            if OFFSETS_TOPIC in self._cache.image.topics:
                return
            await self._topics.create(
                THIS_BROKER,
                OFFSETS_TOPIC,
                partitions=self._offsets_partitions,
                configs=OFFSETS_TOPIC_SETTINGS,
                is_internal=True,
            )

    async def _load_all(self, *, timeout_s: float) -> None:
        """Loads every partition that this broker leads and that was not loaded in this epoch.

        The loads go on after the timeout.
        """
        topic = self._cache.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        started = [
            self._load(number, partition.leader_epoch)
            for number, partition in enumerate(topic.partitions)
            if partition.leader == self._cluster.node_id
        ]
        if loads := [load for load in started if load is not None]:
            await asyncio.wait(loads, timeout=timeout_s)

    def _load(self, number: int, epoch: int) -> asyncio.Task[None] | None:
        async def led() -> Partition:
            await self._partitions.until_leading(OFFSETS_TOPIC, number, epoch)
            return self._partitions.get(OFFSETS_TOPIC, number)

        return self._runtime.load(number, epoch, led)


def _unreadable(context: RequestContext, topic: str) -> ApiError | None:
    try:
        context.check_topic(Operation.READ, topic)
    except ApiError as error:
        return error.with_traceback(None)
    return None


def _with_refused(
    asked: Sequence[OffsetToCommit] | Sequence[TopicPartition],
    refused: Mapping[tuple[str, int], ApiError],
    done: Sequence[PartitionResult],
) -> list[PartitionResult]:
    """The results of a request in its order; `done` are those of what was not refused before."""
    if not refused:
        return list(done)
    results = iter(done)
    return [
        PartitionResult(each.topic, each.partition, error)
        if (error := refused.get((each.topic, each.partition))) is not None
        else next(results)
        for each in asked
    ]


def _visible(
    context: RequestContext, found: Iterable[FetchedOffset], *, are_named: bool
) -> Iterator[FetchedOffset]:
    """The offsets of topics that the client may know of; of named topics also the refusals."""
    for each in found:
        try:
            context.check_topic(Operation.DESCRIBE, each.topic)
        except ApiError as error:
            if are_named:
                yield FetchedOffset(each.topic, each.partition, None, error.with_traceback(None))
        else:
            yield each


def _expect(result: object, kind: type[V]) -> V:
    """The result, which has this type unless it is an `ApiError`: that is raised."""
    if isinstance(result, ApiError):
        # One error may be the reply to many requests, and each raises its own.
        raise ApiError(result.code, result.message)
    assert isinstance(result, kind)
    return result
