"""What becomes of a partition when brokers come and go: its ISR, eligible leaders and leader.

    the ISR that is wished for ──► reassignment done? ──► leader ──► eligible leader replicas

Owns the rules that tie these together; the events that lead here are `leader_election`,
`isr_changes`, `reassignments` and `topics`. Every one of them gives the ISR that it wishes for, and
gets the record of the partition's next state.

A replica is eligible while it has every record below the high watermark: in the ISR, and behind it
in the ELR. The high watermark rests while the ISR is smaller than `min.insync.replicas` or there is
no leader. So a replica that leaves such an ISR stays eligible, until leader and ISR are enough for
the high watermark to move again. A leader comes from

    1. the ISR
    2. the ELR, when no broker of the ISR can lead; it is the ISR alone then
    3. the last known leader, when no replica is eligible: it may have lost its newest records
    4. any replica, where the topic allows unclean elections

and is never a broker that is fenced or shutting down, or whose directory is not there. Without a
candidate there is no leader. The last replica of an ISR stays in it when its broker goes.

Sources: KIP-966, KIP-841, KIP-858; Kafka's PartitionChangeBuilder.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from millrace_protocol.metadata_records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataRecord,
    PartitionChangeRecord,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata.image import ClusterImage, PartitionRegistration, Topic
from millrace_server.metadata.replication_settings import (
    ReplicationSettings,
    replication_settings,
)


class Election(Enum):
    """Which leader is wanted when several brokers can lead."""

    ONLINE = auto()
    """The one there is."""
    PREFERRED = auto()
    """The first of the replicas."""
    UNCLEAN = auto()
    """The one there is, and any replica when no other can."""


@dataclass(frozen=True, slots=True)
class PartitionDecisions:
    """The records of a request for several partitions, and the error of each that is refused.

    `refused` has an entry for each partition of the request, in its order; None for one whose
    change is in `records`, or that is as it was asked for already.
    """

    records: Sequence[MetadataRecord]
    refused: Sequence[ApiError | None]


class ActiveBrokers:
    """The brokers that may lead partitions and be in an ISR, with their directories (KIP-841)."""

    def __init__(self, image: ClusterImage) -> None:
        self._directories = {
            broker.broker_id: broker.directory_ids
            for broker in image.brokers.values()
            if broker.is_active
        }

    def __contains__(self, broker_id: int) -> bool:
        return broker_id in self._directories

    def can_lead(self, partition: PartitionRegistration, broker_id: int) -> bool:
        """Whether the broker is active and has the directory of its replica."""
        directories = self._directories.get(broker_id)
        if directories is None:
            return False
        directory_id = partition.directory_of(broker_id)
        return directory_id == UNASSIGNED_DIRECTORY or directory_id in directories


class PartitionChanges:
    """Collects the records of one change, for partitions of `image`.

    `image` has the brokers as they are behind the change.
    """

    def __init__(self, image: ClusterImage, defaults: Mapping[str, str]) -> None:
        self.records: list[MetadataRecord] = []
        self.active = ActiveBrokers(image)
        self._defaults = defaults
        self._settings: dict[str, ReplicationSettings] = {}

    def settings(self, topic: Topic) -> ReplicationSettings:
        """The settings in force for a topic."""
        found = self._settings.get(topic.name)
        if found is None:
            found = self._settings[topic.name] = replication_settings(topic, self._defaults)
        return found

    def change(
        self,
        topic: Topic,
        number: int,
        isr: Collection[int],
        *,
        start: PartitionRegistration | None = None,
        election: Election = Election.ONLINE,
        is_counted: bool = False,
    ) -> PartitionRegistration:
        """Adds the record that takes a partition to its next state, which it returns.

        `start` is the partition with what the event itself changes; without it, as it is. One that
        stays as it is has a record if it `is_counted`: its partition epoch rises.
        """
        before = topic.partitions[number]
        after = next_state(
            before if start is None else start,
            isr,
            settings=self.settings(topic),
            active=self.active,
            election=election,
        )
        if after != before or is_counted:
            self.records.append(_record(topic.topic_id, number, before, after))
        return after


def next_state(
    partition: PartitionRegistration,
    isr: Collection[int],
    *,
    settings: ReplicationSettings,
    active: ActiveBrokers,
    election: Election = Election.ONLINE,
) -> PartitionRegistration:
    """The partition with the ISR wished for, and with the leader and ELR that follow from it.

    The epochs are as before; they count the record.
    """
    wished = _in_order(partition, isr)
    eligible = [r for r in (*partition.isr, *partition.elr) if r not in wished]
    target = replace(partition, isr=wished, elr=_in_order(partition, eligible))
    target = _with_reassignment_done(target, settings, active)
    target = _with_leader(target, settings, active, election)
    if target.leader == NO_LEADER:
        return target
    if target.elr and len(target.isr) >= _isr_needed(settings, target.replicas):
        target = replace(target, elr=())
    return replace(target, last_known_elr=()) if target.last_known_elr else target


def _isr_needed(settings: ReplicationSettings, replicas: tuple[int, ...]) -> int:
    """The size of the ISR from which on the high watermark moves."""
    return min(settings.min_isr, len(replicas))


def _in_order(partition: PartitionRegistration, brokers: Collection[int]) -> tuple[int, ...]:
    return tuple([replica for replica in partition.replicas if replica in brokers])


def _with_reassignment_done(
    partition: PartitionRegistration, settings: ReplicationSettings, active: ActiveBrokers
) -> PartitionRegistration:
    """The partition without the replicas to remove, once all replicas to add are in the ISR.

    It waits as well while that would take away the last broker that can lead, or leave fewer
    replicas in the ISR than acks=all needs, where there are enough now.
    """
    if not partition.adding and not partition.removing:
        return partition
    going = set(partition.removing)
    staying = tuple(replica for replica in partition.replicas if replica not in going)
    isr = tuple(replica for replica in partition.isr if replica not in going)
    is_done = set(partition.adding) <= set(isr) and any(
        active.can_lead(partition, replica) for replica in isr
    )
    if not is_done or len(isr) < min(len(partition.isr), _isr_needed(settings, staying)):
        return partition
    return replace(
        partition,
        replicas=staying,
        isr=isr,
        directory_ids=tuple(partition.directory_of(replica) for replica in staying),
        elr=tuple(replica for replica in partition.elr if replica not in going),
        last_known_elr=tuple(r for r in partition.last_known_elr if r not in going),
        adding=(),
        removing=(),
    )


def _with_leader(
    partition: PartitionRegistration,
    settings: ReplicationSettings,
    active: ActiveBrokers,
    election: Election,
) -> PartitionRegistration:
    in_sync = [r for r in partition.isr if active.can_lead(partition, r)]
    if in_sync:
        wants_first = election is Election.PREFERRED and in_sync[0] == partition.replicas[0]
        if partition.leader in in_sync and not wants_first:
            return partition
        return replace(partition, leader=in_sync[0])
    eligible = [r for r in partition.elr if active.can_lead(partition, r)]
    if not partition.isr and not partition.elr:
        eligible = [r for r in partition.last_known_elr[:1] if active.can_lead(partition, r)]
    if eligible:
        alone = eligible[0]
        others = {*partition.isr, *partition.elr} - {alone}
        return replace(partition, leader=alone, isr=(alone,), elr=_in_order(partition, others))
    if settings.allows_unclean or election is Election.UNCLEAN:
        unclean = [r for r in partition.replicas if r in active]
        if unclean:
            return _led_uncleanly(partition, unclean, active)
    return replace(partition, leader=NO_LEADER)


def _led_uncleanly(
    partition: PartitionRegistration, brokers: list[int], active: ActiveBrokers
) -> PartitionRegistration:
    """The partition led by one of the brokers, whatever that has of it: records are lost.

    Prefers one that was eligible once, then one whose directory is there. A replica whose directory
    is not there is made anew.
    """
    known = partition.last_known_elr
    leader = min(brokers, key=lambda r: (r not in known, not active.can_lead(partition, r)))
    directory_ids = partition.directory_ids
    if not active.can_lead(partition, leader):
        directory_ids = unassigned(partition, leader)
    return replace(
        partition,
        leader=leader,
        isr=(leader,),
        elr=(),
        last_known_elr=(),
        directory_ids=directory_ids,
    )


def unassigned(partition: PartitionRegistration, broker_id: int) -> tuple[uuid.UUID, ...]:
    """The directories of a partition, that of a broker's replica unknown: it is made anew."""
    return tuple(
        UNASSIGNED_DIRECTORY if replica == broker_id else directory_id
        for replica, directory_id in zip(partition.replicas, partition.directory_ids, strict=True)
    )


def _record(
    topic_id: uuid.UUID, number: int, before: PartitionRegistration, after: PartitionRegistration
) -> PartitionChangeRecord:
    """What takes a partition from one state to another.

    A replica that is removed may go on fetching. So a leader that stays takes a new epoch, in which
    the replica's fetches are refused.
    """
    is_led_anew = after.leader != before.leader or not set(before.replicas) <= set(after.replicas)
    return PartitionChangeRecord(
        topic_id,
        number,
        _changed(before.replicas, after.replicas),
        _changed(before.isr, after.isr),
        after.leader if is_led_anew else LEADER_UNCHANGED,
        None if before.directory_ids == after.directory_ids else after.directory_ids,
        _changed(before.elr, after.elr),
        _changed(before.last_known_elr, after.last_known_elr),
        _changed(before.adding, after.adding),
        _changed(before.removing, after.removing),
    )


def _changed(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if before == after else after
