"""A broker without its port: the image, the partitions, and the services over them.

    dialects ──► appends, fetches, groups, topics, producer_ids ──► partitions ──► log ──► disk
                          topics, producer_ids ──► active controller ──► metadata log ──┘
                                                           └──► applier ──► partitions

Owns the order of starting and stopping. Refuses to know connections: those are `net` and the
dialects, which call the services.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.config import BrokerConfig
from millrace_server.controller.applier import MetadataApplier
from millrace_server.controller.broker_lifecycle import BrokerLifecycle
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.controller.controller_requests import ControllerRequests
from millrace_server.controller.metadata_storage import METADATA_DIRECTORY
from millrace_server.environment.seams import ColdReads, Environment
from millrace_server.log import PartitionLog
from millrace_server.logs import get_logger
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.loop.interruption import run_unless
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.topics import TopicChanges, TopicDefaults
from millrace_server.partitions.compactor import Compactor
from millrace_server.partitions.log_statistics import LogStatistics
from millrace_server.partitions.opening import Opening
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_factory import PartitionFactory
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.purgatory import Purgatory
from millrace_server.partitions.retention import RetentionLoop
from millrace_server.partitions.scrub import Scrub
from millrace_server.partitions.storage import remove_leftovers
from millrace_server.peers.calls import NoPeers, PeerCalls
from millrace_server.replicas.corruption_repair import CorruptionRepair
from millrace_server.replicas.replica_manager import ReplicaManager
from millrace_server.replication.config import ReplicationConfig
from millrace_server.services import broker_gauges
from millrace_server.services.acls import AclService
from millrace_server.services.administration import AdministrationService
from millrace_server.services.authentication import AuthenticationService
from millrace_server.services.authorizer import Authorizer
from millrace_server.services.batch_lookups import BatchLookups
from millrace_server.services.client_quotas import QuotaService
from millrace_server.services.client_throttle import ClientThrottle
from millrace_server.services.cluster import ClusterService
from millrace_server.services.delete_records import DeleteRecordsService
from millrace_server.services.fetch import FetchService
from millrace_server.services.forwarded_topics import ForwardedTopics
from millrace_server.services.groups import GroupCoordinatorService
from millrace_server.services.list_offsets import OffsetService
from millrace_server.services.log_dirs import LogDirService
from millrace_server.services.produce import ProduceService
from millrace_server.services.producer_ids import ProducerIds
from millrace_server.services.quorum import QuorumService
from millrace_server.services.read_replicas import ReadReplicas
from millrace_server.services.records import RecordService
from millrace_server.services.replica_fetch import ReplicaFetchService
from millrace_server.services.replica_read import ReplicaReadService
from millrace_server.services.services import Services
from millrace_server.services.split_ranges import SplitRangeService
from millrace_server.services.statistics import StatisticsService
from millrace_server.services.topics import Topics
from millrace_server.services.users import UserService
from millrace_server.services.voters import VoterService
from millrace_server.statistics import Registry

log = get_logger("millrace.broker")


class Broker:
    """Started once, stopped once. `failed` is done when a disk fault makes going on unsafe."""

    def __init__(
        self,
        config: BrokerConfig,
        env: Environment,
        *,
        cold_reads: ColdReads | None = None,
        peers: PeerCalls | None = None,
        listen_for_brokers: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`listen_for_brokers()` is awaited when other brokers may ask this one who it is."""
        self.config = config
        self._listen_for_brokers = listen_for_brokers
        self.env = env
        self.cache = MetadataCache()
        self.partitions = PartitionTable(self.cache.elsewhere)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.scheduler = FairScheduler(asyncio.get_running_loop(), env.clock)
        self.statistics = Registry()
        self.throttle = ClientThrottle(self.cache, env.clock, self.statistics)
        self.authentication = AuthenticationService(env, self.cache, self.statistics, config)
        self.lookups = BatchLookups(env.spawn, self.scheduler)
        self._produce_purgatory = Purgatory(env)
        self._fetch_purgatory = Purgatory(env)
        self._background_tasks: list[asyncio.Task[None]] = []
        log_statistics = LogStatistics(self.statistics)
        self._repair = CorruptionRepair(
            env, self.cache, peers or NoPeers(), log_statistics, broker_id=config.node_id
        )
        self._factory = PartitionFactory(
            env, self.scheduler, log_statistics, self._end, on_corruption=self._repair.request
        )
        self._make_background(cold_reads)
        self._make_metadata(peers or NoPeers())
        self._make_replication(peers or NoPeers())
        self._make_topics_and_groups()
        self._make_services()
        self._register_gauges()

    def _make_background(self, cold_reads: ColdReads | None) -> None:
        interval_ms = self.config.housekeeping_interval_ms
        self.housekeeping = RetentionLoop(self.partitions, self.env, interval_ms=interval_ms)
        self.compactor = Compactor(
            self.partitions,
            self.env,
            interval_ms=self.config.housekeeping_interval_ms,
            bytes_per_second=self.config.compaction_bytes_per_second,
            keys_max=self.config.compaction_keys_max,
        )
        self.scrub = Scrub(
            self.partitions,
            self.env,
            bytes_per_second=self.config.scrub_bytes_per_second,
            interval_ms=self.config.scrub_interval_ms,
            cold_reads=cold_reads,
        )

    def _make_metadata(self, peers: PeerCalls) -> None:
        self.opening = Opening(
            self.env,
            self.partitions,
            self.cache,
            self.config.topic,
            broker_id=self.config.node_id,
            assign=lambda *replica: self.lifecycle.report_replicas([replica]),
            make_partition=self._make_replica,
            take_role=lambda *role: self.replicas.take_role(*role),
            on_opened=lambda opened: self.producer_ids.on_partition_opened(
                each.producer_id for each in opened.producers.active()
            ),
            on_failure=self._fail_opening,
        )
        self.metadata = ClusterMetadata(
            self.env,
            self.cache,
            MetadataApplier(
                env=self.env,
                partitions=self.partitions,
                cache=self.cache,
                opening=self.opening,
                defaults=self.config.topic,
                broker_id=self.config.node_id,
                on_deleted=lambda topic: self.groups.on_topic_deleted(topic),
                take_role=lambda *role: self.replicas.take_role(*role),
                on_changed=lambda *changed: self.replicas.on_changed(*changed),
                end_roles=lambda *removed: self.replicas.remove(*removed),
                on_leader_changed=lambda *change: self.groups.on_leader_changed(*change),
            ),
            peers,
            node_id=self.config.node_id,
            members=self.config.quorum_members,
            voters_wait_ms=self.config.quorum_wait_ms,
            snapshot_bytes=self.config.metadata_snapshot_bytes,
            make_partition=self._factory.make,
            report=lambda created: self.lifecycle.report_replicas(created),
            on_failure=self._fail_metadata,
        )

    def _make_replication(self, peers: PeerCalls) -> None:
        self.active = self.metadata.active
        self.quorum = QuorumService(self.env, self.metadata)
        self.is_alone = is_alone = self.config.broker_address is None
        self.requests = ControllerRequests(
            self.active,
            self.cache,
            self.env,
            peers,
            self.config,
            is_alone=is_alone,
        )
        calls = self.env, self.metadata, self.requests, peers
        self.controller = ControllerCalls(*calls, is_alone=is_alone)
        self.lifecycle = BrokerLifecycle(
            self.env,
            self.metadata,
            self.controller,
            broker_id=self.config.node_id,
            rack=self.config.rack or None,
            broker_address=lambda: self.config.broker_address or ("", 0),
            is_alone=is_alone,
            heartbeat_interval_ms=self.config.broker_heartbeat_interval_ms,
            session_timeout_ms=self.config.broker_session_timeout_ms,
            register_timeout_ms=self.config.quorum_wait_ms,
            on_registered=lambda: self.replicas.on_registered(),
        )
        self.replicas = ReplicaManager(
            self.env,
            self.partitions,
            self.cache,
            self.controller,
            peers,
            broker_id=self.config.node_id,
            broker_epoch=lambda: self.lifecycle.epoch,
            defaults=self.config.topic,
            config=ReplicationConfig(),
            on_failure=self._fail_metadata,
        )
        self.cluster = ClusterService(self.config, self.cache, self.metadata)
        rate = self.config.catch_up_bytes_per_second
        self.replica_fetch = ReplicaFetchService(
            self.env, self.replicas, catch_up_bytes_per_second=rate
        )

    def _produce_service(self) -> ProduceService:
        waiting, ids = self._produce_purgatory, self.producer_ids
        return ProduceService(
            self.partitions, self.env, self.scheduler, waiting, ids, self.lookups, self.throttle
        )

    def _fetch_service(self) -> FetchService:
        partitions, config, waiting = self.partitions, self.config, self._fetch_purgatory
        replicas = ReadReplicas(partitions, self.cache, config.node_id)
        shared = self.scheduler, waiting, self.throttle, config.shares
        return FetchService(partitions, replicas, *shared)

    def _make_topics_and_groups(self) -> None:
        config = self.config
        defaults = TopicDefaults(
            config.partitions, config.replication_factor, config.topic, config.partitions_max
        )
        self.topics = Topics(
            env=self.env,
            broker_id=config.node_id,
            partitions=self.partitions,
            active=self.active,
            rules=TopicChanges(defaults),
            cache=self.cache,
            defaults=config.topic,
            controller=self.controller,
            forwarded=ForwardedTopics(self.controller, self.metadata),
            throttle=self.throttle,
            scheduler=self.scheduler,
        )
        self.groups = GroupCoordinatorService(
            env=self.env,
            scheduler=self.scheduler,
            partitions=self.partitions,
            topics=self.topics,
            cluster=self.cluster,
            cache=self.cache,
            config=config.group,
            offsets_partitions=config.offsets_topic_partitions,
        )
        self.producer_ids = ProducerIds(
            self.controller,
            self.cache,
            broker_id=self.config.node_id,
            broker_epoch=lambda: self.lifecycle.epoch,
            until=lambda condition: self.metadata.publisher.until(condition),
        )

    def _make_services(self) -> None:
        authorizer = Authorizer(self.cache, self.config, self.statistics, self.env.clock)
        self.services = Services(
            produce=self._produce_service(),
            fetch=self._fetch_service(),
            offsets=OffsetService(self.partitions, self.scheduler, self.lookups),
            topics=self.topics,
            groups=self.groups,
            producer_ids=self.producer_ids,
            cluster=self.cluster,
            records=RecordService(self.partitions, self.throttle),
            ranges=SplitRangeService(self.partitions, self.scheduler),
            delete_records=DeleteRecordsService(self.partitions, self.scheduler),
            log_dirs=LogDirService(self.partitions, self.env, self.scheduler),
            quorum=self.quorum,
            administration=AdministrationService(
                self.active, self.cache, self.config.topic, self.controller, self.quorum
            ),
            voters=VoterService(self.active, self.controller),
            authentication=self.authentication,
            authorizer=authorizer,
            users=UserService(self.env, self.active, self.cache, self.controller),
            acls=AclService(self.active, self.cache, self.controller, authorizer),
            quotas=QuotaService(self.active, self.cache, self.controller),
            throttle=self.throttle,
            controller=self.controller,
            requests=self.requests,
            replica_fetch=self.replica_fetch,
            replica_read=ReplicaReadService(self.env, self.cache, self.partitions),
            lookups=self.lookups,
            scheduler=self.scheduler,
            statistics=StatisticsService(self.statistics, self.env, self.scheduler),
            env=self.env,
        )

    def _register_gauges(self) -> None:
        registry, metadata = self.statistics, self.metadata
        broker_gauges.of_requests(registry, self._produce_purgatory, self._fetch_purgatory)
        broker_gauges.of_partitions(registry, self.partitions, self.replicas)
        broker_gauges.of_groups(registry, self.groups)
        broker_gauges.of_cluster(registry, self.cache, metadata, self.quorum)

    @property
    def image(self) -> ClusterImage:
        """The metadata in force."""
        return self.cache.image

    async def start(self) -> None:
        """Opens what is on the disk and begins housekeeping.

        Returns when all partitions are open, or `start_wait_ms` after the metadata is; the rest
        follow in the background. Raises `OSError`, `CorruptLog`, `UnreadableMetadata` or
        `ApiError` when the metadata cannot be read, and leaves nothing open then; a partition that
        cannot be opened is merely offline.
        """
        try:
            await self.unless_failed(self._open())
        except (Exception, asyncio.CancelledError):
            # Not GeneratorExit: a coroutine that is thrown away cannot wait for anything.
            await self.opening.stop()
            await self.lifecycle.shut_down(0)
            await self.requests.close()
            await self.metadata.close()
            await asyncio.gather(*map(self._shut, self.partitions))
            raise
        self._background_tasks = [
            self.env.spawn.task(self.housekeeping.run(), name="housekeeping"),
            self.env.spawn.task(self.compactor.run(), name="compactor"),
        ]
        if self.config.scrub_bytes_per_second:
            self._background_tasks.append(self.env.spawn.task(self.scrub.run(), name="scrub"))

    async def unless_failed(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a part of the start; raises the fault that ends the broker meanwhile.

        What the part waits for may never come then, such as a record of the metadata log.
        """
        await run_unless(self.failed, self.env.spawn.task(work, name="start broker"))

    async def _open(self) -> None:
        self.partitions.add(await self.metadata.load())
        if self._listen_for_brokers is not None:
            await self._listen_for_brokers()
        await self.metadata.join()
        self.metadata.publisher.on_brokers_changed = self.replicas.on_brokers_changed
        self.requests.start()
        await self.lifecycle.load()
        await self.register()
        remove = partial(remove_leftovers, broker_id=self.config.node_id)
        kept = frozenset({METADATA_DIRECTORY})
        await self.env.spawn.blocking(remove, self.env.disk, self.image, kept)
        if not self.is_alone:
            await self.replicas.load()
        self.opening.begin()
        self.metadata.publisher.begin()
        self.lifecycle.begin()
        await self.opening.wait(self.config.start_wait_ms)
        await self.groups.start(self.config.start_wait_ms)

    async def register(self) -> None:
        """Registers this start of the broker, with its advertised address. Raises `ApiError`.

        In a cluster of one a full disk keeps the registration of an earlier start in force: reads
        go on. With others this broker would lead an epoch twice, with two contents.
        """
        try:
            await self.lifecycle.register(self.cluster.client_listeners)
        except ApiError as error:
            brokers = self.image.brokers
            known = brokers.get(self.config.node_id)
            if known is None or len(brokers) > 1 or error.code is not ErrorCode.DISK_FULL:
                raise
            self.lifecycle.epoch = known.epoch
            log.warning("broker not registered anew", reason=error.message)

    async def hand_over(self) -> None:
        """Has other brokers lead in place of this one, as far as there are any."""
        await self.lifecycle.shut_down(self.config.drain_timeout_ms)

    def answer_waiting(self) -> None:
        """Answers long polls with what there is; a stopping broker does not wait for more."""
        self._fetch_purgatory.expire_all()
        self.groups.answer_waiting()

    async def stop(self) -> None:
        """Makes everything durable and closes it; call when no request can come any more."""
        for task in self._background_tasks:
            task.cancel()
            await asyncio.wait([task])
        await self.opening.stop()
        self.replica_fetch.close()
        await self._repair.close()
        await self.replicas.close()
        await self.groups.stop()
        await self.requests.close()
        await self.metadata.close()
        await asyncio.gather(*map(self._shut, self.partitions))
        await self.lifecycle.note_clean()
        self._produce_purgatory.close()
        self._fetch_purgatory.close()

    async def _shut(self, partition: Partition) -> None:
        try:
            await partition.shut(self.env.spawn)
        except OSError as error:
            # Its files are let go all the same, and the next start recovers what was not synced.
            log.error(
                "partition not closed in order",
                topic=partition.topic,
                partition=partition.number,
                error=str(error),
            )

    def _make_replica(self, topic: str, number: int, opened: PartitionLog) -> Partition:
        """A partition that may have replicas on other brokers."""
        known = self.image.topics[topic]
        hooks = self.replicas.hooks(known, number)
        partition = self._factory.make(topic, number, opened, hooks)
        self.replicas.restore(known, number, partition)
        return partition

    def _fail_metadata(self, error: BaseException) -> None:
        log.critical("the metadata or replicas have failed, stopping", error=repr(error))
        self.active.fail(error)
        self._end(error)

    def _fail_opening(self, error: BaseException) -> None:
        log.critical("partitions cannot be opened, stopping", error=repr(error))
        self._end(error)

    def _end(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()
