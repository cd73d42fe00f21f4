"""Leader elections: those that follow from brokers that come and go, and those that are asked for.

The functions for events take the image in which the broker is already what it has become; they
return the records of exactly the partitions that change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataRecord,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata.image import (
    BrokerRegistration,
    ClusterImage,
    PartitionRegistration,
    Topic,
)
from millrace_server.metadata.partition_changes import (
    Election,
    PartitionChanges,
    PartitionDecisions,
    unassigned,
)

MOVES_MAX = 1_000
"""Leaders that one step of balancing moves."""


def leads_any(image: ClusterImage, broker_id: int) -> bool:
    """Whether a broker leads a partition."""
    return any(
        partition.leader == broker_id
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def on_broker_inactive(
    image: ClusterImage, defaults: Mapping[str, str], broker_id: int
) -> list[MetadataRecord]:
    """Records for a broker that is fenced now, or shutting down.

    It leaves every ISR in which it is not the last, and leads nothing.
    """
    changes = PartitionChanges(image, defaults)
    for topic, number, partition in _all_partitions(image):
        if broker_id in partition.isr:
            changes.change(topic, number, _without_unless_last(partition, broker_id))
    return changes.records


def on_broker_active(
    image: ClusterImage, defaults: Mapping[str, str], broker_id: int
) -> list[MetadataRecord]:
    """Records for a broker that is unfenced now: it may lead partitions that have no leader."""
    changes = PartitionChanges(image, defaults)
    for topic, number, partition in _all_partitions(image):
        if partition.leader == NO_LEADER and broker_id in partition.replicas:
            changes.change(topic, number, partition.isr)
    return changes.records


def on_broker_registered(
    image: ClusterImage,
    defaults: Mapping[str, str],
    broker: BrokerRegistration,
    *,
    is_clean: bool,
) -> list[MetadataRecord]:
    """Records for a broker that has registered anew and is fenced.

    A replica whose directory is not there has lost everything: it is made anew. But the last
    eligible replica stays what it is, so that the partition has no leader until that directory is
    back. After an unclean shutdown a replica may have lost what was not synced, so it is eligible
    no more; a topic whose acks mean synced has lost nothing that was acked.
    """
    changes = PartitionChanges(image, defaults)
    broker_id = broker.broker_id
    for topic, number, partition in _all_partitions(image):
        if broker_id not in partition.replicas:
            continue
        start = partition
        is_eligible = broker_id in partition.isr or broker_id in partition.elr
        directory_id = partition.directory_of(broker_id)
        if directory_id != UNASSIGNED_DIRECTORY and directory_id not in broker.directory_ids:
            if not is_eligible or len(partition.isr) + len(partition.elr) > 1:
                start = _with_replica_lost(partition, broker_id)
        elif is_eligible and not is_clean and not changes.settings(topic).is_synced:
            start = _with_tail_lost(partition, broker_id)
        if start is not partition or broker_id in partition.isr:
            changes.change(topic, number, _without_unless_last(start, broker_id), start=start)
    return changes.records


def on_broker_unregistered(
    image: ClusterImage, defaults: Mapping[str, str], broker_id: int
) -> list[MetadataRecord]:
    """Records for a broker that has left the cluster: no replica of it counts."""
    changes = PartitionChanges(image, defaults)
    for topic, number, partition in _all_partitions(image):
        if broker_id in (*partition.isr, *partition.elr, *partition.last_known_elr):
            start = _ineligible(partition, broker_id)
            changes.change(topic, number, start.isr, start=start)
    return changes.records


def on_topic_settings(
    image: ClusterImage, defaults: Mapping[str, str], topic: Topic
) -> list[MetadataRecord]:
    """Records for a topic whose settings decide otherwise now about its ELR or its leaders."""
    changes = PartitionChanges(image, defaults)
    for number, partition in enumerate(topic.partitions):
        changes.change(topic, number, partition.isr)
    return changes.records


def elect_leaders(
    image: ClusterImage,
    defaults: Mapping[str, str],
    partitions: Iterable[tuple[str, int]],
    election: Election,
) -> PartitionDecisions:
    """Elects the preferred leaders of partitions, or any leader for those without one.

    `election` is `PREFERRED` or `UNCLEAN`.
    """
    changes = PartitionChanges(image, defaults)
    refused: list[ApiError | None] = []
    seen: set[tuple[str, int]] = set()
    for name, number in partitions:
        try:
            if (name, number) in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "A partition stands once in a request")
            seen.add((name, number))
            _elect(changes, image.topic(name), number, election)
            refused.append(None)
        except ApiError as error:
            refused.append(error)
    return PartitionDecisions(changes.records, refused)


def partitions_to_elect(image: ClusterImage, election: Election) -> list[tuple[str, int]]:
    """The partitions that another broker than the preferred one leads; those without a leader, if
    the election is unclean. By topic and number."""
    return [
        (name, number)
        for name in sorted(image.topics)
        for number, partition in enumerate(image.topics[name].partitions)
        if (
            partition.leader != partition.replicas[0]
            if election is Election.PREFERRED
            else partition.leader == NO_LEADER
        )
    ]


def balance_leaders(
    image: ClusterImage, defaults: Mapping[str, str], *, moves_max: int = MOVES_MAX
) -> list[MetadataRecord]:
    """Records of one step that gives partitions to their preferred leaders; none: balanced."""
    changes = PartitionChanges(image, defaults)
    for topic, number, partition in _all_partitions(image):
        if partition.leader == partition.replicas[0] or partition.replicas[0] not in partition.isr:
            continue
        changes.change(topic, number, partition.isr, election=Election.PREFERRED)
        if len(changes.records) >= moves_max:
            break
    return changes.records


def _elect(changes: PartitionChanges, topic: Topic, number: int, election: Election) -> None:
    partition = topic.partition(number)
    shown = f"{topic.name}-{number}"
    first = partition.replicas[0]
    is_preferred = election is Election.PREFERRED
    if partition.leader == first if is_preferred else partition.leader != NO_LEADER:
        raise ApiError(
            ErrorCode.ELECTION_NOT_NEEDED,
            f"Partition {shown} is led by broker {partition.leader}; there is nothing to elect",
        )
    if is_preferred and (
        first not in partition.isr or not changes.active.can_lead(partition, first)
    ):
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"Broker {first}, the preferred leader of {shown}, is not in sync; start it and wait "
            "until the ISR has it",
        )
    after = changes.change(topic, number, partition.isr, election=election)
    if after.leader == NO_LEADER:
        brokers = ", ".join(map(str, partition.replicas))
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"No broker with a replica of {shown} is in service; start one of {brokers}",
        )


def _all_partitions(image: ClusterImage) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            yield topic, number, partition


def _without(brokers: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(broker for broker in brokers if broker != broker_id)


def _without_unless_last(partition: PartitionRegistration, broker_id: int) -> tuple[int, ...]:
    return _without(partition.isr, broker_id) or partition.isr


def _ineligible(partition: PartitionRegistration, broker_id: int) -> PartitionRegistration:
    return replace(
        partition,
        isr=_without(partition.isr, broker_id),
        elr=_without(partition.elr, broker_id),
        last_known_elr=_without(partition.last_known_elr, broker_id),
    )


def _with_tail_lost(partition: PartitionRegistration, broker_id: int) -> PartitionRegistration:
    """The partition whose replica may miss records; a member of the ISR misses the fewest."""
    start = _ineligible(partition, broker_id)
    known = start.last_known_elr
    known = (broker_id, *known) if broker_id in partition.isr else (*known, broker_id)
    return replace(start, last_known_elr=known)


def _with_replica_lost(partition: PartitionRegistration, broker_id: int) -> PartitionRegistration:
    start = _ineligible(partition, broker_id)
    return replace(start, directory_ids=unassigned(start, broker_id))
