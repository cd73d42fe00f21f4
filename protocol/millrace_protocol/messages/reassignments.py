"""AlterPartitionReassignments, ListPartitionReassignments: replicas that move to other brokers."""

from __future__ import annotations

from millrace_protocol.primitives import BOOLEAN, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class PartitionReassignment(Message):
    """The replicas that a partition is to have."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    replicas: tuple[int, ...] | None = wire(
        array_of(INT32, nullable=True),
        "ids of the brokers, the preferred leader first; null cancels the reassignment in progress",
    )


@message
class AlterPartitionReassignmentsRequest(Request):
    """Begins, replaces or cancels reassignments, each separately."""

    partitions: tuple[PartitionReassignment, ...] = wire(
        array_of(PartitionReassignment), "a partition may stand once"
    )
    may_replace: bool = wire(
        BOOLEAN, "whether other replicas may be named for a partition that is being reassigned"
    )


@message
class ReassignmentResult(Message):
    """The result of one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")


@message
class AlterPartitionReassignmentsResponse(Message):
    """One result per partition, in the request's order. A success says that it has begun."""

    partitions: tuple[ReassignmentResult, ...] = wire(array_of(ReassignmentResult), "the results")


@message
class ListPartitionReassignmentsRequest(Request):
    """Asks for the reassignments that are in progress."""

    topics: tuple[str, ...] | None = wire(
        array_of(STRING, nullable=True), "only partitions of these topics; null for all"
    )


@message
class OngoingReassignment(Message):
    """A partition that is being reassigned."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    replicas: tuple[int, ...] = wire(
        array_of(INT32), "ids of the brokers that have a replica, or are to have one"
    )
    adding_replicas: tuple[int, ...] = wire(
        array_of(INT32), "those of them that had none before the reassignment"
    )
    removing_replicas: tuple[int, ...] = wire(
        array_of(INT32), "those of them that have none after it"
    )
    isr: tuple[int, ...] = wire(array_of(INT32), "those of them that are in sync")


@message
class ListPartitionReassignmentsResponse(Message):
    """The reassignments in progress, by topic and partition. A topic that is not there has none."""

    partitions: tuple[OngoingReassignment, ...] = wire(
        array_of(OngoingReassignment), "the partitions"
    )
