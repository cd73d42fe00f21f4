"""The error of one part of a response."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError


def outcome(error: ApiError | None) -> tuple[ErrorCode, str | None]:
    """Error code and message of one group, member or partition; None for a part that is done."""
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)
