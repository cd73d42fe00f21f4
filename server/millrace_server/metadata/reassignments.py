"""Reassignments: a partition's replicas move to other brokers, while it serves (KIP-455).

    replicas (1, 2), wanted (2, 3)   ──►  (2, 3, 1) adding 3, removing 1
    the ISR has 3                    ──►  (2, 3)            `partition_changes`
    cancelled before                 ──►  (2, 1)

Owns what may be asked for, and the plan that empties a broker. The wanted replicas come first, in
their order: the first of them is the preferred leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    NO_LEADER,
    ConfigRecord,
    MetadataRecord,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata.assignments import check_replicas
from millrace_server.metadata.image import (
    BrokerRegistration,
    ClusterImage,
    PartitionRegistration,
    Topic,
)
from millrace_server.metadata.partition_changes import PartitionChanges, PartitionDecisions
from millrace_server.metadata.replication_settings import MIN_ISR, with_shared_settings


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replicas wanted for a partition, the preferred leader first; None: cancel."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


def reassign(
    image: ClusterImage,
    defaults: Mapping[str, str],
    wanted: Iterable[Reassignment],
    *,
    may_replace: bool = False,
) -> PartitionDecisions:
    """Begins, replaces or cancels reassignments, each for itself.

    One in progress is replaced only with `may_replace`. The same one again changes nothing.
    """
    changes = PartitionChanges(image, defaults)
    written: dict[str, list[MetadataRecord]] = {}
    refused: list[ApiError | None] = []
    seen: set[tuple[str, int]] = set()
    for each in wanted:
        key = (each.topic, each.partition)
        try:
            if key in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "A partition stands once in a request")
            seen.add(key)
            topic = image.topic(each.topic)
            start = _start(image, changes, topic, each, may_replace=may_replace)
            if each.replicas is not None:
                written[topic.name] = _shared_settings(topic, defaults, len(each.replicas))
            changes.change(topic, each.partition, start.isr, start=start)
            refused.append(None)
        except ApiError as error:
            refused.append(error)
    settings = [record for records in written.values() for record in records]
    return PartitionDecisions([*settings, *changes.records], refused)


def plan_retirement(image: ClusterImage, broker_id: int) -> list[Reassignment]:
    """Reassignments that leave a broker without replicas. Raises `ApiError` if there is no room.

    Each replica goes to an active broker without one of the partition: to another rack than those
    of the other replicas where there is one, and to the broker with the fewest replicas.
    """
    held = dict.fromkeys(image.brokers, 0)
    for topic in image.topics.values():
        for partition in topic.partitions:
            for replica in _wanted_now(partition):
                held[replica] = held.get(replica, 0) + 1
    plan: list[Reassignment] = []
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            replicas = _wanted_now(partition)
            if broker_id not in replicas:
                continue
            found = _substitute(image, replicas, broker_id, held)
            if found is None:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Partition {topic.name}-{number} has {len(replicas)} replica(s) and no other "
                    f"broker can take that of broker {broker_id}; start another broker, or "
                    "reassign the partition to fewer replicas",
                )
            held[found] += 1
            plan.append(
                Reassignment(
                    topic.name, number, tuple(found if r == broker_id else r for r in replicas)
                )
            )
    return plan


def _start(
    image: ClusterImage,
    changes: PartitionChanges,
    topic: Topic,
    wanted: Reassignment,
    *,
    may_replace: bool,
) -> PartitionRegistration:
    """The partition with what a reassignment itself changes. Raises `ApiError`."""
    partition = topic.partition(wanted.partition)
    if wanted.replicas is None:
        return _cancelled(changes, partition, f"{wanted.topic}-{wanted.partition}")
    _check_wanted(image, changes, topic, wanted.replicas)
    if not may_replace:
        _check_not_replaced(partition, wanted)
    return _begun(partition, wanted.replicas)


def _wanted_now(partition: PartitionRegistration) -> tuple[int, ...]:
    """The replicas that a partition is to have when its reassignment, if any, is done."""
    return tuple(r for r in partition.replicas if r not in partition.removing)


def _substitute(
    image: ClusterImage, replicas: tuple[int, ...], broker_id: int, held: Mapping[int, int]
) -> int | None:
    racks = {image.brokers[r].rack for r in replicas if r != broker_id and r in image.brokers} - {
        None
    }

    def rank(broker: BrokerRegistration) -> tuple[bool, int, int]:
        return broker.rack in racks, held[broker.broker_id], broker.broker_id

    free = [
        b
        for b in image.brokers.values()
        if b.is_active and b.broker_id != broker_id and b.broker_id not in replicas
    ]
    return min(free, key=rank).broker_id if free else None


def _check_wanted(
    image: ClusterImage, changes: PartitionChanges, topic: Topic, replicas: tuple[int, ...]
) -> None:
    check_replicas(image, replicas)
    min_isr = changes.settings(topic).min_isr
    if len(replicas) < min_isr:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Topic {topic.name!r} has {MIN_ISR} {min_isr} and the replicas wanted are "
            f"{len(replicas)}: no acks=all write could be answered; lower the setting first",
        )


def _check_not_replaced(partition: PartitionRegistration, wanted: Reassignment) -> None:
    is_ongoing = bool(partition.adding or partition.removing)
    if is_ongoing and wanted.replicas != _wanted_now(partition):
        known = ", ".join(map(str, _wanted_now(partition)))
        raise ApiError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"Partition {wanted.topic}-{wanted.partition} is being reassigned to brokers {known}; "
            "wait until that is done, cancel it, or say that it is to be replaced",
        )


def _begun(partition: PartitionRegistration, wanted: tuple[int, ...]) -> PartitionRegistration:
    """The partition with the replicas wanted, and behind them those to remove.

    A replica that an earlier reassignment adds is still to be added if it is wanted now.
    """
    removing = tuple(r for r in partition.replicas if r not in wanted)
    settled = set(partition.replicas) - set(partition.adding)
    replicas = (*wanted, *removing)
    return replace(
        partition,
        replicas=replicas,
        directory_ids=tuple(partition.directory_of(r) for r in replicas),
        adding=tuple(r for r in wanted if r not in settled),
        removing=removing,
    )


def _cancelled(
    changes: PartitionChanges, partition: PartitionRegistration, shown: str
) -> PartitionRegistration:
    """The partition with the replicas that it had; those that were to be added go again."""
    if not partition.adding and not partition.removing:
        raise ApiError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"Partition {shown} is not being reassigned"
        )
    replicas = tuple(r for r in partition.replicas if r not in partition.adding)
    eligible = [r for r in replicas if r in partition.isr or r in partition.elr]
    if partition.leader != NO_LEADER and not any(
        changes.active.can_lead(partition, replica) for replica in eligible
    ):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"None of the old replicas of {shown} can lead it, so the reassignment cannot be "
            "cancelled; start their brokers, or wait until it is done",
        )
    return replace(
        partition,
        replicas=replicas,
        isr=tuple(r for r in partition.isr if r in replicas),
        elr=tuple(r for r in partition.elr if r in replicas),
        last_known_elr=tuple(r for r in partition.last_known_elr if r in replicas),
        directory_ids=tuple(partition.directory_of(r) for r in replicas),
        adding=(),
        removing=(),
    )


def _shared_settings(
    topic: Topic, defaults: Mapping[str, str], replication_factor: int
) -> list[MetadataRecord]:
    """Records of the settings that a topic with several replicas has as its own, if it lacks some.

    The default for `min.insync.replicas` is that of one replica here: a higher one would stop
    writes with acks=all until the new replicas are there.
    """
    written = with_shared_settings(
        topic.configs, defaults, replication_factor=min(replication_factor, 2)
    )
    return [
        ConfigRecord(topic.topic_id, name, written[name])
        for name in sorted(written.keys() - topic.configs.keys())
    ]
