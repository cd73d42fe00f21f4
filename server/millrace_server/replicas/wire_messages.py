"""The fetches of followers in the form of the wire, and back. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import replica_fetch as wire
from millrace_server.log.epochs import EpochEnd
from millrace_server.replication.messages import (
    UNKNOWN_OFFSET,
    BrokerKey,
    Diverging,
    FetchOutcome,
    FetchPosition,
    FetchRequest,
    FetchResult,
    OutOfRange,
    PartitionKey,
    Records,
    Refused,
)

NONE = -1


def encoded_request(request: FetchRequest) -> wire.ReplicaFetchRequest:
    """The request of a follower."""
    return wire.ReplicaFetchRequest(
        request.follower.broker_id,
        request.follower.epoch,
        request.is_first,
        request.max_wait_ms,
        request.max_bytes,
        tuple(wire.ReplicaFetchPartition(*key, *position) for key, position in request.positions),
        tuple(wire.ForgottenPartition(*key) for key in request.forgotten),
    )


def decoded_request(request: wire.ReplicaFetchRequest) -> FetchRequest:
    """The request that has come from a follower."""
    return FetchRequest(
        BrokerKey(request.broker_id, request.broker_epoch),
        request.is_first,
        tuple(
            (
                PartitionKey(each.topic_id, each.partition),
                FetchPosition(
                    each.leader_epoch, each.fetch_offset, each.last_epoch, each.log_start_offset
                ),
            )
            for each in request.partitions
        ),
        tuple(PartitionKey(each.topic_id, each.partition) for each in request.forgotten),
        request.max_wait_ms,
        request.max_bytes,
    )


def encoded_result(
    key: PartitionKey, result: FetchResult, records: memoryview | bytes
) -> wire.ReplicaFetchPartitionResult:
    """One partition of a response; `records` may be a slice of a file."""
    outcome = result.outcome
    code, diverging, start_offset = ErrorCode.NONE, EpochEnd(NONE, NONE), result.log_start_offset
    match outcome:
        case Refused():
            code = outcome.code
        case Diverging():
            diverging = outcome.end
        case OutOfRange():
            code, start_offset = ErrorCode.OFFSET_OUT_OF_RANGE, outcome.start_offset
    return wire.ReplicaFetchPartitionResult(
        *key, code, None, result.high_watermark, start_offset, *diverging, records
    )


def decoded_results(
    response: wire.ReplicaFetchResponse,
) -> Iterator[tuple[PartitionKey, FetchResult]]:
    """What a response says of each partition. The offset of records is the asked one's."""
    for each in response.partitions:
        yield PartitionKey(each.topic_id, each.partition), _decoded(each)


def _decoded(each: wire.ReplicaFetchPartitionResult) -> FetchResult:
    outcome: FetchOutcome
    if each.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return FetchResult(OutOfRange(each.log_start_offset))
    if each.error_code != ErrorCode.NONE:
        try:
            return FetchResult(Refused(ErrorCode(each.error_code)))
        except ValueError:
            return FetchResult(Refused(ErrorCode.UNKNOWN_SERVER_ERROR))
    if each.diverging_end_offset != NONE:
        end = EpochEnd(each.diverging_epoch, each.diverging_end_offset)
        return FetchResult(Diverging(end))
    outcome = Records(UNKNOWN_OFFSET, each.records if len(each.records) else None)
    return FetchResult(outcome, each.high_watermark, each.log_start_offset)
