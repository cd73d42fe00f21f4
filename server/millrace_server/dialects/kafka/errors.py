"""The error codes that a Kafka client is told: Kafka's own, and what stands for ours."""

from __future__ import annotations

from enum import IntEnum

from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_server.api_error import ApiError


class KafkaError(IntEnum):
    """Codes of Kafka that no other dialect has."""

    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    UNKNOWN_TOPIC_ID = 100
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115


_STANDS_FOR = {
    ErrorCode.DISK_FULL: ErrorCode.KAFKA_STORAGE_ERROR,
    # A client that gets it looks for another leader, and comes back.
    ErrorCode.BROKER_STOPPING: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_API: ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.FRAME_TOO_LARGE: ErrorCode.INVALID_REQUEST,
    ErrorCode.VOTER_CHANGE_REFUSED: ErrorCode.INVALID_REQUEST,
}


def kafka_code(code: ErrorCode) -> int:
    """The number for a code, which may be one that Kafka does not have."""
    return int(_STANDS_FOR.get(code, code))


def coordinator_code(error: ApiError) -> int:
    """The same for requests to coordinators, whose clients look for another coordinator."""
    if error.code in (ErrorCode.BROKER_STOPPING, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        return int(ErrorCode.NOT_COORDINATOR)
    return kafka_code(error.code)


def finding_code(error: ApiError) -> int:
    """The same for the request that looks for a coordinator, which the client repeats."""
    if error.code is ErrorCode.BROKER_STOPPING:
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return kafka_code(error.code)


def is_passing(error: ApiError) -> bool:
    """Whether the same request may succeed later."""
    return ERROR_TRAITS[error.code].retriable
