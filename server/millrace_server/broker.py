"""A broker without its port: the image, the partitions, and the services over them.

    dialects ──► appends, fetches, groups, topics, producer_ids ──► partitions ──► log ──► disk
                          topics, producer_ids ──► active controller ──► metadata log ──┘
                                                           └──► applier ──► partitions

Owns the order of starting and stopping. Refuses to know connections: those are `net` and the
dialects, which call the services.
"""

from __future__ import annotations

import asyncio
import uuid
from functools import partial

from millrace_server.config import BrokerConfig
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.applier import MetadataApplier
from millrace_server.controller.metadata_log import METADATA_TOPIC, MetadataLog, NotWritten
from millrace_server.controller.metadata_storage import METADATA_DIRECTORY, open_metadata_log
from millrace_server.environment.seams import ColdReads, Environment
from millrace_server.log import CorruptRange, PartitionLog
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.metadata.broker_registrations import BrokerStart, register_single_broker
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.topics import (
    REPLICATION_FACTOR_DEFAULT,
    TopicChanges,
    TopicDefaults,
)
from millrace_server.partitions.compactor import Compactor
from millrace_server.partitions.log_statistics import LogStatistics
from millrace_server.partitions.opening import Opening
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.purgatory import Purgatory
from millrace_server.partitions.retention import RetentionLoop
from millrace_server.partitions.scrub import Scrub
from millrace_server.partitions.storage import remove_leftovers
from millrace_server.services.batch_lookups import BatchLookups
from millrace_server.services.cluster import ClusterService
from millrace_server.services.delete_records import DeleteRecordsService
from millrace_server.services.fetch import FetchService
from millrace_server.services.groups import GroupCoordinatorService
from millrace_server.services.list_offsets import OffsetService
from millrace_server.services.log_dirs import LogDirService
from millrace_server.services.produce import ProduceService
from millrace_server.services.producer_ids import ProducerIds
from millrace_server.services.quorum import QuorumService
from millrace_server.services.records import RecordService
from millrace_server.services.services import Services
from millrace_server.services.split_ranges import SplitRangeService
from millrace_server.services.statistics import StatisticsService
from millrace_server.services.topics import Topics
from millrace_server.statistics import Registry, Sample, metrics

log = get_logger("millrace.broker")


class Broker:
    """Started once, stopped once. `failed` is done when a disk fault makes going on unsafe."""

    def __init__(
        self, config: BrokerConfig, env: Environment, *, cold_reads: ColdReads | None = None
    ) -> None:
        self.config = config
        self.env = env
        self.cache = MetadataCache()
        self.partitions = PartitionTable()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic_defaults = TopicDefaults(
            config.partitions,
            REPLICATION_FACTOR_DEFAULT,
            config.topic,
            config.partitions_max,
        )
        self.scheduler = FairScheduler(asyncio.get_running_loop())
        self.statistics = Registry()
        self._log_statistics = LogStatistics(self.statistics)
        self.lookups = BatchLookups(env.spawn, self.scheduler)
        self._produce_purgatory = Purgatory(env)
        self._fetch_purgatory = Purgatory(env)
        self._statistics_service = StatisticsService(self.statistics, env.clock, self.scheduler)
        self._register_gauges()
        self.cluster = ClusterService(config, self.cache)
        self.housekeeping = RetentionLoop(
            self.partitions, env, interval_ms=config.housekeeping_interval_ms
        )
        self.compactor = Compactor(
            self.partitions,
            env,
            interval_ms=config.housekeeping_interval_ms,
            bytes_per_second=config.compaction_bytes_per_second,
            keys_max=config.compaction_keys_max,
        )
        self.scrub = Scrub(
            self.partitions,
            env,
            bytes_per_second=config.scrub_bytes_per_second,
            interval_ms=config.scrub_interval_ms,
            cold_reads=cold_reads,
        )
        self._background_tasks: list[asyncio.Task[None]] = []
        # A disk that fails does so in many places, and each is told of once.
        self._corruption_lines = LogRateLimiter(env.clock)
        self._opening = Opening(
            env,
            self.partitions,
            self.cache,
            config.topic,
            broker_id=config.node_id,
            assign=lambda topic_id, number: self.active.assign(topic_id, number),
            make_partition=self._make_partition,
            on_opened=lambda opened: self.producer_ids.on_partition_opened(opened.producer_ids()),
            on_failure=self._fail_opening,
        )

    def _register_gauges(self) -> None:
        registry, partitions = self.statistics, self.partitions
        registry.gauge(metrics.PURGATORY, lambda: len(self._produce_purgatory), "produce")
        registry.gauge(metrics.PURGATORY, lambda: len(self._fetch_purgatory), "fetch")
        registry.collect(
            metrics.LOG_SIZE, lambda: (Sample((p.topic,), p.log.size_bytes) for p in partitions)
        )
        registry.collect(
            metrics.PARTITIONS, lambda: (Sample((state,), 1) for state in partitions.states())
        )

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
            await self._open()
        except (Exception, asyncio.CancelledError):
            # Not GeneratorExit: a coroutine that is thrown away cannot wait for anything.
            await self._opening.stop()
            await self._shut_partitions()
            raise
        self._background_tasks = [
            self.env.spawn.task(self.housekeeping.run(), name="housekeeping"),
            self.env.spawn.task(self.compactor.run(), name="compactor"),
        ]
        if self.config.scrub_bytes_per_second:
            self._background_tasks.append(self.env.spawn.task(self.scrub.run(), name="scrub"))

    async def _open(self) -> None:
        await self._open_metadata()
        self.topics = Topics(
            env=self.env,
            broker_id=self.config.node_id,
            partitions=self.partitions,
            active=self.active,
            rules=TopicChanges(self._topic_defaults),
            cache=self.cache,
            defaults=self.config.topic,
        )
        self.groups = GroupCoordinatorService(
            env=self.env,
            scheduler=self.scheduler,
            partitions=self.partitions,
            topics=self.topics,
            cluster=self.cluster,
            cache=self.cache,
            config=self.config.group,
            offsets_partitions=self.config.offsets_topic_partitions,
        )
        self.statistics.collect(
            metrics.GROUPS, lambda: (Sample((state,), 1) for state in self.groups.states())
        )
        self.producer_ids = ProducerIds(self.active, self.cache, broker_id=self.config.node_id)
        self.services = Services(
            produce=ProduceService(
                self.partitions,
                self.env,
                self.scheduler,
                self._produce_purgatory,
                self.producer_ids,
                self.lookups,
            ),
            fetch=FetchService(self.partitions, self.scheduler, self._fetch_purgatory),
            offsets=OffsetService(self.partitions, self.scheduler, self.lookups),
            topics=self.topics,
            groups=self.groups,
            producer_ids=self.producer_ids,
            cluster=self.cluster,
            records=RecordService(self.partitions),
            ranges=SplitRangeService(self.partitions, self.scheduler),
            delete_records=DeleteRecordsService(self.partitions, self.scheduler),
            log_dirs=LogDirService(self.partitions, self.env, self.scheduler),
            quorum=QuorumService(self.partitions, self.cache, broker_id=self.config.node_id),
            lookups=self.lookups,
            scheduler=self.scheduler,
            statistics=self._statistics_service,
            env=self.env,
        )
        await self.register()
        await self.env.spawn.blocking(
            remove_leftovers, self.env.disk, self.image, frozenset({METADATA_DIRECTORY})
        )
        self._opening.begin()
        await self._opening.wait(self.config.start_wait_ms)
        await self.groups.start(self.config.start_wait_ms)

    async def _open_metadata(self) -> None:
        env = self.env
        opened = await env.spawn.blocking(
            open_metadata_log, env.disk, env.clock.wall_ms(), self.config.metadata_snapshot_bytes
        )
        partition = self._make_partition(METADATA_TOPIC, 0, opened)
        self.partitions.add(partition)
        applier = MetadataApplier(
            env=env,
            partitions=self.partitions,
            cache=self.cache,
            opening=self._opening,
            defaults=self.config.topic,
            broker_id=self.config.node_id,
            on_deleted=lambda topic: self.groups.on_topic_deleted(topic),
            on_leader_changed=lambda *change: self.groups.on_leader_changed(*change),
        )
        self.active = ActiveController(
            MetadataLog(partition, env.clock),
            self.cache,
            applier,
            env,
            broker_id=self.config.node_id,
            snapshot_bytes=self.config.metadata_snapshot_bytes,
        )
        self.active.load()

    async def register(self) -> None:
        """Registers this start of the broker, with its advertised address. Raises `ApiError`.

        A full disk keeps the registration of an earlier start in force: reads go on.
        """
        rng, config = self.env.rng, self.config
        cluster_id, incarnation_id, directory_id = (
            uuid.UUID(int=rng.getrandbits(128), version=4) for _ in range(3)
        )
        known = self.image.brokers.get(config.node_id)
        host, port = self.cluster.address
        start = BrokerStart(
            config.node_id,
            incarnation_id,
            host,
            port,
            config.rack or None,
            # The metadata log lies in the data directory, so it knows the directory's identity.
            (directory_id,) if known is None else known.directory_ids,
        )
        try:
            await self.active.change(
                lambda image: register_single_broker(image, start, cluster_id=cluster_id)
            )
        except NotWritten as error:
            if known is None:
                raise
            log.warning("broker not registered anew", reason=error.message)

    def answer_waiting(self) -> None:
        """Answers long polls with what there is; a stopping broker does not wait for more."""
        self._fetch_purgatory.expire_all()
        self.groups.answer_waiting()

    async def stop(self) -> None:
        """Makes everything durable and closes it; call when no request can come any more."""
        for task in self._background_tasks:
            task.cancel()
            await asyncio.wait([task])
        await self._opening.stop()
        await self.groups.stop()
        await self.active.close()
        await self._shut_partitions()
        self._produce_purgatory.close()
        self._fetch_purgatory.close()

    async def _shut_partitions(self) -> None:
        await asyncio.gather(*map(self._shut, self.partitions))

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

    def _make_partition(self, topic: str, number: int, opened: PartitionLog) -> Partition:
        return Partition(
            topic,
            number,
            opened,
            self.env,
            self.scheduler,
            on_failure=partial(self._fail, topic, number),
            on_corruption=self._report_corruption,
            statistics=self._log_statistics,
        )

    def _report_corruption(self, partition: Partition, found: CorruptRange) -> None:
        suppressed = self._corruption_lines.take()
        if suppressed is not None:
            log.error(
                "bytes on the disk are not what was written",
                topic=partition.topic,
                partition=partition.number,
                path=found.path,
                position=found.position,
                offset=found.offset,
                end_offset=found.end_offset,
                reason=found.message,
                suppressed=suppressed,
            )

    def _fail(self, topic: str, number: int, error: BaseException) -> None:
        # After a failed fsync it is unknown what is on the disk: the kernel has marked the pages
        # clean, and a second fsync would succeed without writing them.
        log.critical("disk fault, stopping", topic=topic, partition=number, error=str(error))
        self._end(error)

    def _fail_opening(self, error: BaseException) -> None:
        log.critical("partitions cannot be opened, stopping", error=repr(error))
        self._end(error)

    def _end(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()
