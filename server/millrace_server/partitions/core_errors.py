"""What the cores raise, in the words of the wire."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import BatchTooLarge, CorruptBatch, Fault
from millrace_server.api_error import ApiError
from millrace_server.log import (
    DISK_FULL_ERRNOS,
    CorruptLog,
    FencedProducer,
    LogClosed,
    LogFailed,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RottenBatches,
    UnknownProducer,
)

_CODES: dict[type[Exception], ErrorCode] = {
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    FencedProducer: ErrorCode.INVALID_PRODUCER_EPOCH,
    UnknownProducer: ErrorCode.UNKNOWN_PRODUCER_ID,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    RottenBatches: ErrorCode.CORRUPT_MESSAGE,
    LogFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    LogClosed: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    CorruptLog: ErrorCode.KAFKA_STORAGE_ERROR,
}
_FAULT_CODES = {
    Fault.CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    Fault.FIELD: ErrorCode.INVALID_RECORD,
    Fault.PAYLOAD: ErrorCode.INVALID_RECORD,
}
"""Any other fault of a batch is damage on the way: CORRUPT_MESSAGE, which is worth a retry."""
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
    if isinstance(error, CorruptBatch):
        return ApiError(_FAULT_CODES.get(error.reason, ErrorCode.CORRUPT_MESSAGE), str(error))
    for cls, code in _CODES.items():
        if isinstance(error, cls):
            return ApiError(code, str(error))
    raise error
