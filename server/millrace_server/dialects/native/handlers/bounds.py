"""What one request may not say twice (wire_spec.md W-4); how much it may say is W-3.5's."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError


def check_once(names: Sequence[Hashable], what: str) -> None:
    """Raises `ApiError` when something stands twice that the message's table allows once."""
    if len(names) < 2:
        return
    seen = set()
    for name in names:
        if name in seen:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"The request names {what} {name!r} more than once; nothing was done",
            )
        seen.add(name)
