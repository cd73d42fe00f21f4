"""What replicas of the metadata log send each other, and DescribeQuorum.

Followers pull (KIP-595). A voter is a broker id and a directory (KIP-853), a pre-vote asks before
an epoch is begun (KIP-996), and a snapshot replaces the front of the log (KIP-630).
"""

from __future__ import annotations

import uuid

from millrace_protocol.primitives import (
    BOOLEAN,
    BYTES,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    RECORDS,
    UUID,
)
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class QuorumRequest(Request):
    """Base of what one replica of the metadata log sends another one."""

    source_id: int = wire(INT32, "the sender's broker id")
    source_directory_id: uuid.UUID = wire(UUID, "directory of the sender's metadata log")
    epoch: int = wire(INT32, "the sender's epoch")


@message
class QuorumResponse(Message):
    """Base of the responses. The receiver's epoch may be newer than the request's."""

    source_directory_id: uuid.UUID = wire(UUID, "directory of the receiver's metadata log")
    epoch: int = wire(INT32, "the receiver's epoch")
    leader_id: int = wire(INT32, "the leader of that epoch; -1 if the receiver knows none")


@message
class VoteRequest(QuorumRequest):
    """Asks for a vote, or whether one would be given."""

    voter_directory_id: uuid.UUID = wire(
        UUID, "the directory by which the sender knows the receiver; another one must not vote"
    )
    last_epoch: int = wire(INT32, "epoch of the last record of the sender's log")
    last_offset: int = wire(INT64, "end offset of the sender's log")
    is_pre_vote: bool = wire(
        BOOLEAN, "only asks; epoch is the one that the sender is in, and no vote is spent"
    )


@message
class VoteResponse(QuorumResponse):
    """Whether the receiver votes for the sender."""

    is_granted: bool = wire(BOOLEAN, "whether it does; of a pre-vote, whether it would")


@message
class BeginQuorumEpochRequest(QuorumRequest):
    """The sender leads in its epoch. It is sent again until the voter fetches."""


@message
class BeginQuorumEpochResponse(QuorumResponse):
    """A newer epoch in it means that the sender no longer leads."""


@message
class EndQuorumEpochRequest(QuorumRequest):
    """The sender no longer leads in its epoch."""

    successors: tuple[int, ...] = wire(
        array_of(INT32), "ids of the voters, the one with the longest log first"
    )


@message
class EndQuorumEpochResponse(QuorumResponse):
    """Says no more than the receiver's epoch and leader."""


@message
class QuorumFetchRequest(QuorumRequest):
    """Asks for the metadata log from an offset on; the sender has all before it on the disk."""

    fetch_id: int = wire(INT64, "chosen by the sender, repeated in the response")
    fetch_offset: int = wire(INT64, "end offset of the sender's log")
    last_epoch: int = wire(INT32, "epoch of the record before fetch_offset; 0 if there is none")
    high_watermark: int = wire(INT64, "end of what the sender knows to be committed")


@message
class QuorumFetchResponse(QuorumResponse):
    """Records, where the logs part, or the snapshot that the sender needs first.

    `error_code` is NOT_LEADER_OR_FOLLOWER if the receiver does not lead.
    """

    error_code: int = wire(INT16, "error of the request (W-7)")
    fetch_id: int = wire(INT64, "the request's")
    high_watermark: int = wire(INT64, "end of what is committed; -1 if unknown")
    diverging_epoch: int = wire(
        INT32, "the newest epoch up to last_epoch in the leader's log; -1 for none"
    )
    diverging_end_offset: int = wire(
        INT64, "where that epoch ends in the leader's log; -1 unless the logs differ"
    )
    snapshot_epoch: int = wire(INT32, "epoch of the last record in the snapshot; -1 for none")
    snapshot_end_offset: int = wire(
        INT64, "end of what the snapshot holds; -1 unless the sender needs it"
    )
    records: bytes | memoryview = wire(
        RECORDS, "whole record batches, the first with fetch_offset as base_offset", unit="bytes"
    )


@message
class FetchSnapshotRequest(Request):
    """Asks for a part of a snapshot of the metadata log. A snapshot never changes."""

    snapshot_end_offset: int = wire(INT64, "end offset of what the snapshot holds")
    snapshot_epoch: int = wire(INT32, "epoch of the last record in it")
    position: int = wire(INT64, "the first byte wanted", unit="bytes")
    max_bytes: int = wire(INT32, "most bytes of the part", unit="bytes")


@message
class FetchSnapshotResponse(Message):
    """A part of the snapshot."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    size: int = wire(INT64, "of the whole snapshot; -1 on error", unit="bytes")
    position: int = wire(INT64, "the first byte of the part; -1 on error", unit="bytes")
    data: bytes = wire(BYTES, "the part; the last one ends at size")


@message
class DescribeQuorumRequest(Request):
    """Asks for the state of the metadata quorum."""


@message
class QuorumReplica(Message):
    """One replica of the metadata log, as the leader sees it."""

    broker_id: int = wire(INT32, "the replica's broker")
    directory_id: uuid.UUID = wire(UUID, "directory of its metadata log")
    is_voter: bool = wire(BOOLEAN, "whether it votes; if not, it only follows")
    end_offset: int = wire(INT64, "end of what is durable in its log; -1 if unknown")
    fetched_ms: int = wire(
        INT64, "time since its last fetch; 0 for the leader, -1 if unknown", unit="ms"
    )
    caught_up_ms: int = wire(
        INT64, "time since it last had the leader's whole log; 0 and -1 likewise", unit="ms"
    )


@message
class DescribeQuorumResponse(Message):
    """The leader of the metadata log, and how far each replica has come."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    leader_id: int = wire(INT32, "the active controller; -1 if there is none")
    leader_epoch: int = wire(INT32, "the epoch that it leads in; -1 if there is none")
    high_watermark: int = wire(INT64, "end of what is committed; -1 if unknown")
    replicas: tuple[QuorumReplica, ...] = wire(
        array_of(QuorumReplica), "the voters, then the others, each by id"
    )
