"""What must hold of a partition's metadata at every moment, and from one moment to the next."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from millrace_protocol.metadata_records import NO_LEADER, UNASSIGNED_DIRECTORY
from millrace_server.metadata.image import ClusterImage, PartitionRegistration, Topic
from millrace_server.metadata.replication_settings import ReplicationSettings


class Violation(AssertionError):
    """An invariant does not hold."""


def check(holds: bool, invariant: str) -> None:
    """Raises `Violation` unless the invariant holds."""
    if not holds:
        raise Violation(invariant)


@dataclass(frozen=True, slots=True)
class Change:
    """A partition before and behind a change.

    `entered` are the brokers that its leader saw catch up, `restarted` those that have registered.
    """

    old: PartitionRegistration
    new: PartitionRegistration
    entered: Collection[int]
    restarted: Collection[int]


def check_state(
    image: ClusterImage, topic: Topic, known: PartitionRegistration, settings: ReplicationSettings
) -> None:
    """Raises `Violation`."""
    replicas, isr, elr = set(known.replicas), set(known.isr), set(known.elr)
    adding, removing = set(known.adding), set(known.removing)
    check(len(replicas) == len(known.replicas) > 0, "a broker has one replica at most")
    check(isr | elr | set(known.last_known_elr) <= replicas, "ISR and ELR are replicas")
    check(not isr & elr, "ISR and ELR share no broker")
    check(not (isr | elr) & set(known.last_known_elr), "an eligible replica has lost nothing")
    check(adding | removing <= replicas, "what is reassigned are replicas")
    check(not adding & removing, "a replica is added or removed")
    check(settings.min_isr <= topic.replication_factor, "acks=all can be answered")
    active = {b.broker_id for b in image.brokers.values() if b.is_active}
    if known.leader == NO_LEADER:
        check(len(isr) <= 1 or isr <= active, "only the last replica stays in the ISR")
        able = {r for r in (isr | elr) & active if _has_directory(image, known, r)}
        check(not able, "a partition has a leader while one is eligible")
        return
    check(known.leader in isr, "the leader is in the ISR")
    check(isr <= active, "no broker that is fenced or stops is in an ISR with a leader")
    check(not known.last_known_elr, "last known leaders are for partitions without a leader")
    is_enough = len(isr) >= min(settings.min_isr, len(replicas))
    check(not elr or not is_enough, "there is an ELR only below min.insync.replicas")


def check_epochs(change: Change) -> None:
    """Raises `Violation`."""
    old, new = change.old, change.new
    check(new.leader_epoch >= old.leader_epoch, "leader epochs do not fall")
    check(new == old or new.partition_epoch > old.partition_epoch, "a change is counted")
    is_led_anew = new.leader != old.leader or not set(old.replicas) <= set(new.replicas)
    check(not is_led_anew or new.leader_epoch > old.leader_epoch, "a new leader, a new epoch")


def is_loss(change: Change) -> bool:
    """Whether the leader is a replica that was not eligible, or one that is made anew."""
    old, new = change.old, change.new
    leader = new.leader
    is_made_anew = new.directory_of(leader) == UNASSIGNED_DIRECTORY != old.directory_of(leader)
    is_eligible = leader in (*old.isr, *old.elr, *change.entered)
    return leader != NO_LEADER and (is_made_anew or not is_eligible)


def check_loss(change: Change, settings: ReplicationSettings, *, is_wanted: bool) -> None:
    """Raises `Violation` if the topic does not allow it and no operator has asked for it."""
    is_last_known = _is_last_known(change) and not settings.is_synced
    check(
        is_wanted or settings.allows_unclean or is_last_known,
        "only an eligible replica is elected unless the topic says otherwise",
    )


def situations_of(change: Change) -> Iterator[str]:
    """What has happened to the partition."""
    old, new = change.old, change.new
    if new.leader not in (NO_LEADER, old.leader) and new.leader in old.elr:
        yield "a leader is elected from the ELR"
    if is_loss(change):
        is_last = _is_last_known(change)
        yield "the last known leader is elected" if is_last else "an unclean leader is elected"
    if old.removing and not new.removing:
        yield "a reassignment is done or cancelled"
    if new.adding and not old.adding:
        yield "a replica is being added"
    if new.elr and not old.elr:
        yield "a replica enters the ELR"


def _is_last_known(change: Change) -> bool:
    old = change.old
    eligible = {*old.isr, *old.elr, *change.entered}
    return change.new.leader in old.last_known_elr and eligible <= set(change.restarted)


def _has_directory(image: ClusterImage, known: PartitionRegistration, broker_id: int) -> bool:
    directory_id = known.directory_of(broker_id)
    return directory_id in (UNASSIGNED_DIRECTORY, *image.brokers[broker_id].directory_ids)
