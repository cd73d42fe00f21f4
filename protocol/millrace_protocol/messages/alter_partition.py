"""AlterPartition: a leader tells the controller which replicas are in sync (KIP-497, KIP-903)."""

from __future__ import annotations

import uuid

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, UUID
from millrace_protocol.schema import BrokerRequest, Message, array_of, message, wire


@message
class IsrMember(Message):
    """A replica in sync."""

    broker_id: int = wire(INT32, "the replica's broker")
    broker_epoch: int = wire(INT64, "its registration, as the leader knows it; -1 if unknown")


@message
class AlteredPartition(Message):
    """One partition and its new ISR."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    partition: int = wire(INT32, "partition number")
    leader_epoch: int = wire(INT32, "the epoch that the sender leads in")
    partition_epoch: int = wire(INT32, "the version of the partition that the change is based on")
    isr: tuple[IsrMember, ...] = wire(array_of(IsrMember), "every replica in sync, the leader too")


@message
class AlterPartitionRequest(BrokerRequest):
    """Asks for new ISRs of partitions that the sender leads; each may fail for itself."""

    broker_id: int = wire(INT32, "the sender's id")
    broker_epoch: int = wire(INT64, "the epoch of its registration")
    partitions: tuple[AlteredPartition, ...] = wire(
        array_of(AlteredPartition), "a partition may stand once"
    )


@message
class AlteredPartitionResult(Message):
    """The partition as it is committed now."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    leader_id: int = wire(INT32, "broker that leads; -1 if none does, or on error")
    leader_epoch: int = wire(INT32, "epoch of that leader; -1 on error")
    partition_epoch: int = wire(INT32, "the new version of the partition; -1 on error")
    isr: tuple[int, ...] = wire(array_of(INT32), "ids of the replicas in sync; empty on error")


@message
class AlterPartitionResponse(Message):
    """One result per partition of the request, in its order."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    partitions: tuple[AlteredPartitionResult, ...] = wire(
        array_of(AlteredPartitionResult), "the results; empty on error"
    )
