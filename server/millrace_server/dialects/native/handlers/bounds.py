"""How much one request may ask for (wire_spec.md W-6.4)."""

from __future__ import annotations

from collections.abc import Sequence

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
