"""ReplicaFetch: a follower pulls record batches of many partitions from one leader.

The connection is the fetch session: a request names the partitions that are new to it or have
changed, and the leader remembers the others (KIP-227, without ids).
"""

from __future__ import annotations

import uuid

from millrace_protocol.primitives import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    RECORDS,
    UUID,
)
from millrace_protocol.schema import BrokerRequest, Message, array_of, message, wire


@message
class ReplicaFetchPartition(Message):
    """How far the follower's log of one partition goes."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    partition: int = wire(INT32, "partition number")
    leader_epoch: int = wire(INT32, "the leader epoch that the follower knows")
    fetch_offset: int = wire(
        INT64, "offset of the next record; all before it is stored as durably as the topic demands"
    )
    last_epoch: int = wire(INT32, "epoch of the record before fetch_offset; -1 if there is none")
    log_start_offset: int = wire(
        INT64, "first offset of the follower's log; no crash brings an earlier record back"
    )


@message
class ForgottenPartition(Message):
    """A partition that the follower no longer fetches here."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    partition: int = wire(INT32, "partition number")


@message
class ReplicaFetchRequest(BrokerRequest):
    """Changes what the connection fetches, then waits for records of any of it."""

    broker_id: int = wire(INT32, "the follower's id")
    broker_epoch: int = wire(INT64, "the epoch of its registration")
    is_first: bool = wire(
        BOOLEAN, "the leader forgets what earlier requests of the connection named"
    )
    max_wait_ms: int = wire(INT32, "longest wait for something to tell; 0: none", unit="ms")
    max_bytes: int = wire(INT32, "most bytes of records in the response", unit="bytes")
    partitions: tuple[ReplicaFetchPartition, ...] = wire(
        array_of(ReplicaFetchPartition), "those that are new or have changed"
    )
    forgotten: tuple[ForgottenPartition, ...] = wire(
        array_of(ForgottenPartition), "those that the leader is to forget"
    )


@message
class ReplicaFetchPartitionResult(Message):
    """Records, a new high watermark, where the logs part, or an error."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    high_watermark: int = wire(INT64, "end of what is committed; -1 if unknown")
    log_start_offset: int = wire(INT64, "first offset of the leader's log; -1 if unknown")
    diverging_epoch: int = wire(
        INT32, "the newest epoch up to last_epoch in the leader's log; -1 for none"
    )
    diverging_end_offset: int = wire(
        INT64, "where that epoch ends in the leader's log; -1 unless the logs differ"
    )
    records: bytes | memoryview = wire(
        RECORDS, "whole record batches, the first with fetch_offset as base_offset", unit="bytes"
    )


@message
class ReplicaFetchResponse(Message):
    """The partitions with something to tell; of the others nothing has changed."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    partitions: tuple[ReplicaFetchPartitionResult, ...] = wire(
        array_of(ReplicaFetchPartitionResult), "the results, each partition at most once"
    )
