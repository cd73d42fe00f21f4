"""OffsetForLeaderEpoch: where the records of a leader epoch end (KIP-320)."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class EpochPartition(Message):
    """A partition, and an epoch whose end is wanted."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    current_leader_epoch: int = wire(INT32, "the leader epoch the client knows; -1 for none")
    leader_epoch: int = wire(INT32, "the epoch of a record that the client has read")


@message
class OffsetForLeaderEpochRequest(Request):
    """Asks where epochs end in the logs of leaders; each entry is answered separately."""

    partitions: tuple[EpochPartition, ...] = wire(
        array_of(EpochPartition), "a partition may be named more than once"
    )


@message
class EpochEndResult(Message):
    """Where an epoch ends in one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    leader_epoch: int = wire(
        INT32, "the newest epoch of the log that is not above the one asked for; -1 for none"
    )
    end_offset: int = wire(INT64, "offset behind its last record; -1 for none")


@message
class OffsetForLeaderEpochResponse(Message):
    """One result per entry of the request, in its order."""

    partitions: tuple[EpochEndResult, ...] = wire(array_of(EpochEndResult), "the results")
