"""What a coordinator answers, in the words of the native dialect."""

from __future__ import annotations

from typing import TypeVar

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.group.effects import Refusal, Result

R = TypeVar("R")


def expect(result: Result, kind: type[R]) -> R:
    """The result, which is of this kind unless it is a refusal: that is raised as `ApiError`."""
    if isinstance(result, Refusal):
        raise ApiError(result.code, result.message)
    assert isinstance(result, kind)
    return result


def outcome(refusal: Refusal | None) -> tuple[ErrorCode, str | None]:
    """Error code and message of one part of an answer."""
    return (ErrorCode.NONE, None) if refusal is None else (refusal.code, refusal.message)
