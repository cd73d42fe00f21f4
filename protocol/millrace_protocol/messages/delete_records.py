"""DeleteRecords: deletes the oldest records of partitions, up to an offset."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire

HIGH_WATERMARK = -1
"""Stands for the high watermark of the partition: all records that can be read are deleted."""


@message
class DeleteRecordsPartition(Message):
    """A partition, and the first offset that stays."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    offset: int = wire(INT64, "records before it are deleted; -1 for the high watermark")


@message
class DeleteRecordsRequest(Request):
    """Deletes the oldest records of partitions, in each separately."""

    partitions: tuple[DeleteRecordsPartition, ...] = wire(
        array_of(DeleteRecordsPartition), "a partition may be named once"
    )


@message
class DeletedRecords(Message):
    """The result of one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    low_watermark: int = wire(INT64, "first offset still in the partition; -1 on error")


@message
class DeleteRecordsResponse(Message):
    """One result per partition of the request, in its order."""

    partitions: tuple[DeletedRecords, ...] = wire(array_of(DeletedRecords), "the results")
