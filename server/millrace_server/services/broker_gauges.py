"""The gauges of a broker: what its parts know anyway, asked for when the registry is read.

Owns what is counted under which label. A collector gives a sample for each partition, so that the
registry can stop between any of them; the registry adds them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millrace_protocol.metadata_records import NO_LEADER
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.metadata.cache import MetadataCache
from millrace_server.partitions.partition_table import PartitionTable
from millrace_server.partitions.purgatory import Purgatory
from millrace_server.partitions.role import Role
from millrace_server.replicas.replica_manager import ReplicaManager
from millrace_server.replication.leader import PartitionLeader
from millrace_server.services.groups import GroupCoordinatorService
from millrace_server.services.quorum import QuorumService
from millrace_server.services.request_context import THIS_BROKER
from millrace_server.statistics import Metric, Registry, Sample, metrics


def of_requests(registry: Registry, produces: Purgatory, fetches: Purgatory) -> None:
    """Requests that wait."""
    registry.gauge(metrics.PURGATORY, lambda: len(produces), "produce")
    registry.gauge(metrics.PURGATORY, lambda: len(fetches), "fetch")


def of_partitions(registry: Registry, partitions: PartitionTable, replicas: ReplicaManager) -> None:
    """The partitions of this broker, and the replicas of those that it leads."""

    def of_led(metric: Metric, counts: Callable[[PartitionLeader], bool]) -> None:
        def collect() -> Iterator[Sample]:
            yield Sample((), 0)
            for led in list(replicas.led.values()):
                yield Sample((), int(counts(led.core)))

        registry.collect(metric, collect)

    registry.collect(
        metrics.LOG_SIZE, lambda: (Sample((p.topic,), p.log.size_bytes) for p in partitions)
    )
    registry.collect(
        metrics.PARTITIONS, lambda: (Sample((state,), 1) for state in partitions.states())
    )
    registry.gauge(metrics.PARTITIONS, lambda: 0, "online")
    registry.gauge(metrics.PARTITIONS, lambda: 0, "offline")
    registry.gauge(metrics.LED_PARTITIONS, lambda: 0)
    registry.collect(
        metrics.LED_PARTITIONS,
        lambda: (Sample((), int(p.leadership.role is Role.LEADER)) for p in partitions),
    )
    of_led(metrics.UNDER_REPLICATED, _is_under_replicated)
    of_led(
        metrics.AT_MIN_ISR,
        lambda core: (
            _is_under_replicated(core) and len(core.isr.committed) == core.state.isr_needed
        ),
    )
    of_led(metrics.BELOW_MIN_ISR, lambda core: len(core.isr.committed) < core.state.isr_needed)
    registry.gauge(metrics.ISR_SHRINKS, lambda: replicas.proposals.shrinks)
    registry.gauge(metrics.ISR_EXPANDS, lambda: replicas.proposals.expands)


def _is_under_replicated(core: PartitionLeader) -> bool:
    return len(core.isr.committed) < len(core.state.replicas)


def of_groups(registry: Registry, groups: GroupCoordinatorService) -> None:
    """The groups that this broker coordinates."""
    registry.collect(metrics.GROUPS, lambda: (Sample((state,), 1) for state in groups.states()))


def of_cluster(
    registry: Registry, cache: MetadataCache, metadata: ClusterMetadata, quorum: QuorumService
) -> None:
    """The metadata, and what only the active controller counts: else each broker of a cluster would
    report the same fault, each at another moment."""

    def controls() -> bool:
        return metadata.has_joined and metadata.replica.leading_epoch is not None

    def without_leader() -> Iterator[Sample]:
        yield Sample((), 0)
        for topic in cache.image.topics.values() if controls() else ():
            for partition in topic.partitions:
                yield Sample((), int(partition.leader == NO_LEADER))

    def brokers() -> Iterator[Sample]:
        yield Sample(("active",), 0)
        yield Sample(("fenced",), 0)
        for broker in cache.image.brokers.values() if controls() else ():
            yield Sample(("fenced" if broker.is_fenced else "active",), 1)

    def quorum_lag() -> Iterator[Sample]:
        if controls():
            end_offset = metadata.log.end_offset
            for replica in quorum.describe(THIS_BROKER).replicas:
                if replica.end_offset >= 0:
                    lag = max(0, end_offset - replica.end_offset)
                    yield Sample((str(replica.broker_id),), lag)

    def once_joined(metric: Metric, read: Callable[[], int]) -> None:
        registry.collect(metric, lambda: (Sample((), read()),) if metadata.has_joined else ())

    registry.gauge(metrics.ACTIVE_CONTROLLER, lambda: int(controls()))
    registry.collect(metrics.WITHOUT_LEADER, without_leader)
    registry.collect(metrics.BROKERS, brokers)
    registry.collect(metrics.QUORUM_LAG, quorum_lag)
    once_joined(metrics.QUORUM_EPOCH, lambda: metadata.replica.epoch)
    once_joined(metrics.METADATA_END, lambda: metadata.log.end_offset)
    once_joined(metrics.METADATA_COMMITTED, lambda: metadata.log.committed_offset)
    once_joined(metrics.METADATA_APPLIED, lambda: metadata.publisher.applied_offset)
