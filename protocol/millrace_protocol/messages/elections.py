"""ElectLeaders: leaders that an operator asks for."""

from __future__ import annotations

from millrace_protocol.primitives import BOOLEAN, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class ElectionPartition(Message):
    """A partition that is to have a leader."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")


@message
class ElectLeadersRequest(Request):
    """Elects the preferred leaders of partitions, or any leader, each separately."""

    partitions: tuple[ElectionPartition, ...] | None = wire(
        array_of(ElectionPartition, nullable=True),
        "a partition may stand once; null for all that need the election",
    )
    is_unclean: bool = wire(
        BOOLEAN,
        "for partitions without a leader: any replica leads, and records may be lost; if false, "
        "the first of the replicas leads",
    )


@message
class ElectedLeader(Message):
    """The result of one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    leader_id: int = wire(INT32, "the new leader; -1 on error")


@message
class ElectLeadersResponse(Message):
    """One result per partition, in the request's order; for null by topic and partition."""

    partitions: tuple[ElectedLeader, ...] = wire(array_of(ElectedLeader), "the results")
