"""What the cores raise, in the words of the wire."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import BatchTooLarge, CorruptBatch, Fault
from millrace_server.api_error import ApiError
from millrace_server.log import (
    DISK_FULL_ERRNOS,
    CorruptLog,
    CorruptRecords,
    FencedProducer,
    LogClosed,
    LogFailed,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ReadOnlyLog,
    RecordsUnderRepair,
    TimestampOutOfRange,
    UnknownProducer,
)

_CODES: dict[type[Exception], ErrorCode] = {
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    FencedProducer: ErrorCode.INVALID_PRODUCER_EPOCH,
    UnknownProducer: ErrorCode.UNKNOWN_PRODUCER_ID,
    TimestampOutOfRange: ErrorCode.INVALID_TIMESTAMP,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    CorruptRecords: ErrorCode.CORRUPT_MESSAGE,
    RecordsUnderRepair: ErrorCode.KAFKA_STORAGE_ERROR,
    LogFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    ReadOnlyLog: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    LogClosed: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    CorruptLog: ErrorCode.KAFKA_STORAGE_ERROR,
}
_FAULT_CODES = {
    Fault.CRC: ErrorCode.CORRUPT_MESSAGE,
    Fault.CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}
"""A wrong CRC may be damage on the way, and clients send the batch again. Any other fault is in the
batch that the client made, and would be there again: INVALID_RECORD."""
CORE_ERRORS: tuple[type[Exception], ...] = (ApiError, OSError, CorruptBatch, *_CODES)
"""What a service may catch from a core and answer; anything else is a bug."""


def as_api_error(error: Exception) -> ApiError:
    """The refusal that says the same as an exception of `CORE_ERRORS`."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, OSError):
        if error.errno in DISK_FULL_ERRNOS:
            return ApiError(ErrorCode.DISK_FULL)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk refused: {error}")
    if isinstance(error, ReadOnlyLog) and error.cause.errno in DISK_FULL_ERRNOS:
        return ApiError(ErrorCode.DISK_FULL)
    if isinstance(error, CorruptBatch):
        code = _FAULT_CODES.get(error.reason, ErrorCode.INVALID_RECORD)
        return ApiError(code, _capitalized(error.message))
    for cls, code in _CODES.items():
        if isinstance(error, cls):
            return ApiError(code, _capitalized(str(error)))
    raise error


def start_not_durable() -> ApiError:
    """The answer to a deletion of records that a full disk keeps from being written down."""
    return ApiError(
        ErrorCode.DISK_FULL,
        "The records cannot be read any more, and the disk is too full to write that down: a "
        "restart may bring them back. Free space and send the request again",
    )


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
