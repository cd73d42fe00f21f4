"""Changes of ISRs that leaders ask for: AlterPartition.

A leader sees which followers keep up, and only the controller changes the ISR. The request carries
what it is based on, so that one from another time changes nothing:

    the sender's broker epoch      another process had its id, or has it now
    the leader epoch               another leader has been elected
    the partition epoch            the partition has changed
    each member's broker epoch     the replica has restarted since it caught up

The partition epoch rises with every change that is taken, also if the ISR was the same before. A
leader that has no response to a proposal asks for its ISR anew: after that no older proposal can
take effect, and it need not wait for the brokers of those any more.

A broker that is fenced or shutting down enters no ISR: it would count for acks=all, and go.

Sources: KIP-497, KIP-841, KIP-903; Kafka's ReplicationControlManager.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.metadata.broker_registrations import registered_broker
from millrace_server.metadata.image import ClusterImage, PartitionRegistration
from millrace_server.metadata.partition_changes import PartitionChanges, PartitionDecisions

UNKNOWN_EPOCH = -1
"""The broker epoch of an ISR member that the leader does not know."""


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The ISR that a leader wants for a partition: broker ids and their broker epochs."""

    topic_id: uuid.UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


def change_isrs(
    image: ClusterImage,
    defaults: Mapping[str, str],
    wanted: Iterable[IsrChange],
    *,
    broker_id: int,
    broker_epoch: int,
) -> PartitionDecisions:
    """The ISRs that the leader `broker_id` asks for. Raises `ApiError` if it is not that broker.

    A change may finish a reassignment that takes the partition from its leader: its records stand
    then, and its error is NEW_LEADER_ELECTED.
    """
    registered_broker(image, broker_id, broker_epoch)
    changes = PartitionChanges(image, defaults)
    refused: list[ApiError | None] = []
    seen: set[tuple[uuid.UUID, int]] = set()
    for change in wanted:
        key = (change.topic_id, change.partition)
        try:
            if key in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "A partition stands once in a request")
            seen.add(key)
            _change_isr(image, changes, change, broker_id)
            refused.append(None)
        except ApiError as error:
            refused.append(error)
    return PartitionDecisions(changes.records, refused)


def _change_isr(
    image: ClusterImage, changes: PartitionChanges, change: IsrChange, broker_id: int
) -> None:
    topic = image.topic_by_id(change.topic_id)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no topic with the id {change.topic_id}; it was deleted",
        )
    partition = topic.partition(change.partition)
    shown = f"{topic.name}-{change.partition}"
    _check_epochs(partition, change, broker_id, shown)
    _check_members(image, partition, change, broker_id, shown)
    members = [member for member, _ in change.isr]
    after = changes.change(topic, change.partition, members, is_counted=True)
    if after.leader != broker_id:
        raise ApiError(
            ErrorCode.NEW_LEADER_ELECTED,
            f"The reassignment of {shown} is done and broker {after.leader} leads it",
        )


def _check_epochs(
    partition: PartitionRegistration, change: IsrChange, broker_id: int, shown: str
) -> None:
    if (
        change.leader_epoch > partition.leader_epoch
        or change.partition_epoch > partition.partition_epoch
    ):
        raise ApiError(
            ErrorCode.NOT_CONTROLLER,
            f"Partition {shown} is at leader epoch {partition.leader_epoch} here and at "
            f"{change.leader_epoch} at its leader: this controller is behind; ask the active one",
        )
    if change.leader_epoch < partition.leader_epoch:
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"Partition {shown} is at leader epoch {partition.leader_epoch} and the request is of "
            f"{change.leader_epoch}",
        )
    if partition.leader != broker_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {partition.leader} leads {shown}, not broker {broker_id}",
        )
    if change.partition_epoch < partition.partition_epoch:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Partition {shown} is at partition epoch {partition.partition_epoch} and the request "
            f"is based on {change.partition_epoch}; apply the newer metadata first",
        )


def _check_members(
    image: ClusterImage,
    partition: PartitionRegistration,
    change: IsrChange,
    broker_id: int,
    shown: str,
) -> None:
    members = [member for member, _ in change.isr]
    if broker_id not in members or len(set(members)) != len(members):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The ISR of {shown} is to have each member once and its leader, and it is {members}",
        )
    for member, epoch in change.isr:
        if member not in partition.replicas:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker {member} has no replica of {shown}")
        broker = image.brokers.get(member)
        if broker is None or not broker.is_active:
            raise ApiError(
                ErrorCode.INELIGIBLE_REPLICA,
                f"Broker {member} is fenced or shutting down and enters no ISR; try again when it "
                "is back",
            )
        if epoch not in (UNKNOWN_EPOCH, broker.epoch):
            raise ApiError(
                ErrorCode.INELIGIBLE_REPLICA,
                f"Broker {member} is at broker epoch {broker.epoch} and caught up at {epoch}: it "
                "has restarted since",
            )
