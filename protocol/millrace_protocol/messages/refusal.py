"""The body of a response whose header carries an error code (wire_spec.md W-2.4)."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_protocol.primitives import INT16, STRING
from millrace_protocol.schema import Message, wire


@dataclass(slots=True)
class Refusal(Message):
    """Why the whole request was refused."""

    message: str = wire(STRING, "what was wrong and what to do, for a person")
    min_version: int = wire(
        INT16, "lowest version of the api spoken here; -1 when that is not the point", default=-1
    )
    max_version: int = wire(
        INT16, "highest version of the api spoken here; -1 likewise", default=-1
    )
