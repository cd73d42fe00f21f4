"""The body of a response whose header carries an error code (wire_spec.md W-2.4)."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, STRING
from millrace_protocol.schema import Message, message, wire


@message
class ErrorResponse(Message):
    """The reason why the broker refused the whole request."""

    message: str = wire(STRING, "the reason and the remedy, for a person")
    min_version: int = wire(
        INT16, "lowest version of the api; -1 unless the code is UNSUPPORTED_VERSION", default=-1
    )
    max_version: int = wire(INT16, "highest version of the api; -1 likewise", default=-1)
