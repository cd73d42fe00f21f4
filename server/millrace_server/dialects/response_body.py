"""What a handler returns, and how it becomes a frame."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_protocol.schema import Message
from millrace_server.environment.seams import ResponsePart


@dataclass(slots=True)
class BodyParts:
    """A response body in parts, `size` bytes in all: for bodies that hold slices of files.

    `error_codes` are those of its results that are errors.
    """

    parts: list[ResponsePart]
    size: int
    error_codes: Sequence[ErrorCode] = ()


Body = Message | BodyParts
"""One response body."""
Handled = Body | Coroutine[Any, Any, Body | None] | None
"""What a handler returns: a body, a coroutine that returns one, or None where there is no response.

A coroutine awaits the services and the fair scheduler. It is closed at its `await` when its
connection ends.
"""


class CloseConnection(Exception):
    """The connection is to be closed without a response, for the reason and errors given."""

    def __init__(self, reason: str, error_codes: Sequence[ErrorCode]) -> None:
        super().__init__(reason)
        self.error_codes = error_codes
