"""How much one request may ask for (wire_spec.md W-6.4)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from millrace_protocol.errors import ErrorCode
from millrace_server.refusal import Refused

ENTRIES_MAX = 2_000
"""Partitions or topics of one request: bounds what one frame can make the broker do."""


def check_entries(entries: Sequence[object], what: str) -> None:
    """Raises `Refused` when a request names more than `ENTRIES_MAX` of something."""
    if len(entries) > ENTRIES_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"The request names {len(entries)} {what}; the limit is {ENTRIES_MAX}, send several",
        )


def check_once(names: Sequence[Hashable], what: str) -> None:
    """Raises `Refused` when something stands twice that the message's table allows once."""
    if len(names) < 2:
        return
    seen = set()
    for name in names:
        if name in seen:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"The request names {what} {name!r} more than once; nothing was done",
            )
        seen.add(name)
