"""The state of a cluster, from what its brokers say: brokers, quorum, and unhealthy partitions.

Owns the state of each broker and the faults of partitions. Asks no broker: the caller does.

    fenced              a broker that is a replica or a voter, and is not in service
    without leader      no in-sync replica is in service: neither reads nor writes
    below min ISR       fewer in-sync replicas than min.insync.replicas: no writes with acks=all
    at min ISR          exactly as many, and not all replicas: no more of them may be lost
    under-replicated    fewer in-sync replicas than replicas; each of the above is that too
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from millrace.admin import PartitionDescription, TopicDescription
from millrace.brokers import ClusterDescription, QuorumDescription
from millrace.records import TopicPartition

MIN_ISR = "min.insync.replicas"


class Fault(StrEnum):
    """What is wrong with a partition, the worst first."""

    WITHOUT_LEADER = "without leader"
    BELOW_MIN_ISR = "below min ISR"
    AT_MIN_ISR = "at min ISR"
    UNDER_REPLICATED = "under-replicated"


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker and its replicas; the address is None while it is fenced."""

    node_id: int
    address: str | None
    rack: str | None
    leaders: int
    in_sync: int
    replicas: int

    @property
    def is_fenced(self) -> bool:
        """Whether it is not in service."""
        return self.address is None


@dataclass(frozen=True, slots=True)
class UnhealthyPartition:
    """A partition, and what is wrong with it, the worst first."""

    where: TopicPartition
    faults: tuple[Fault, ...]
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state of the cluster at one time."""

    cluster_id: str
    quorum: QuorumDescription
    brokers: tuple[BrokerState, ...]
    partitions: int
    unhealthy: tuple[UnhealthyPartition, ...]
    """The worst first, then by topic and number."""

    @property
    def faults(self) -> Counter[Fault]:
        """The number of partitions with each fault."""
        return Counter(fault for each in self.unhealthy for fault in each.faults)

    @property
    def problems(self) -> list[str]:
        """What is not as it should be, in words; none in a healthy cluster."""
        found = [] if self.quorum.leader is not None else ["no active controller"]
        fenced = [str(broker.node_id) for broker in self.brokers if broker.is_fenced]
        if fenced:
            found.append(f"fenced: broker {', '.join(fenced)}")
        found += [f"{self.faults[fault]:,} {fault}" for fault in Fault if self.faults[fault]]
        return found


def under_replicated(topics: Iterable[TopicDescription]) -> list[str]:
    """The names of topics with under-replicated partitions."""
    return [
        topic.name
        for topic in topics
        if any(partition.is_under_replicated for partition in topic.partitions)
    ]


def cluster_state(
    cluster: ClusterDescription,
    quorum: QuorumDescription,
    topics: Iterable[TopicDescription],
    *,
    min_isr: Mapping[str, int],
) -> ClusterState:
    """The state of the cluster. `min_isr` has the topics that are `under_replicated`."""
    partitions = [(topic.name, each) for topic in topics for each in topic.partitions]
    leaders = Counter(each.leader for _, each in partitions if each.leader is not None)
    in_sync = Counter(node for _, each in partitions for node in each.isr)
    replicas = Counter(node for _, each in partitions for node in each.replicas)
    addresses = {each.node_id: f"{each.host}:{each.port}" for each in cluster.brokers}
    racks = {each.node_id: each.rack for each in cluster.brokers}
    known = {*addresses, *replicas, *(each.node_id for each in quorum.replicas)}
    brokers = tuple(
        BrokerState(
            node,
            addresses.get(node),
            racks.get(node),
            leaders[node],
            in_sync[node],
            replicas[node],
        )
        for node in sorted(known)
    )
    unhealthy = [
        UnhealthyPartition(
            TopicPartition(name, each.partition),
            _faults(each, min_isr.get(name, 1)),
            each.leader,
            each.replicas,
            each.isr,
            min_isr.get(name, 1),
        )
        for name, each in partitions
        if each.is_under_replicated
    ]
    order = list(Fault)
    unhealthy.sort(key=lambda each: (order.index(each.faults[0]), each.where))
    return ClusterState(cluster.cluster_id, quorum, brokers, len(partitions), tuple(unhealthy))


def _faults(partition: PartitionDescription, min_isr: int) -> tuple[Fault, ...]:
    if partition.leader is None:
        return (Fault.WITHOUT_LEADER, Fault.UNDER_REPLICATED)
    if len(partition.isr) < min_isr:
        return (Fault.BELOW_MIN_ISR, Fault.UNDER_REPLICATED)
    if len(partition.isr) == min_isr:
        return (Fault.AT_MIN_ISR, Fault.UNDER_REPLICATED)
    return (Fault.UNDER_REPLICATED,)


def as_json(found: ClusterState) -> dict[str, Any]:
    """The state as an object of JSON."""
    return {
        "cluster_id": found.cluster_id,
        "healthy": not found.problems,
        "problems": found.problems,
        "controller": found.quorum.leader,
        "brokers": [
            {
                "node_id": broker.node_id,
                "address": broker.address,
                "rack": broker.rack,
                "fenced": broker.is_fenced,
                "leaders": broker.leaders,
                "in_sync": broker.in_sync,
                "replicas": broker.replicas,
            }
            for broker in found.brokers
        ],
        "quorum": {
            "leader": found.quorum.leader,
            "leader_epoch": found.quorum.leader_epoch,
            "high_watermark": found.quorum.high_watermark,
            "replicas": [
                {
                    "node_id": each.node_id,
                    "voter": each.is_voter,
                    "end_offset": each.end_offset,
                    "lag": found.quorum.lag(each),
                    "fetched_ms": each.fetched_ms,
                    "caught_up_ms": each.caught_up_ms,
                }
                for each in found.quorum.replicas
            ],
        },
        "partitions": {
            "count": found.partitions,
            **{_KEYS[fault]: found.faults[fault] for fault in Fault},
        },
        "unhealthy": [
            {
                "topic": each.where.topic,
                "partition": each.where.partition,
                "faults": [_KEYS[fault] for fault in each.faults],
                "leader": each.leader,
                "replicas": each.replicas,
                "isr": each.isr,
                "min_isr": each.min_isr,
            }
            for each in found.unhealthy
        ],
    }


_KEYS = {fault: fault.value.replace(" ", "_").replace("-", "_").lower() for fault in Fault}
