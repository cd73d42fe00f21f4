"""What a handler gives back, and how it becomes a frame."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass

from millrace_protocol.framing import response_header
from millrace_protocol.schema import Message
from millrace_server.environment.seams import ReplyPart
from millrace_server.loop.fair_scheduler import Pause


@dataclass(slots=True)
class BodyParts:
    """A response body in pieces, `size` bytes in all: for bodies that hold slices of files."""

    parts: list[ReplyPart]
    size: int


Answer = Message | BodyParts
"""One response body."""
AnswerPieces = Generator[Pause, None, "Answer | asyncio.Future[Answer | AnswerPieces] | None"]
"""A body that takes long to make; see `net.turns.Pieces`."""
Answered = Answer | asyncio.Future[Answer | AnswerPieces] | AnswerPieces | None
"""What a handler returns: a body now, a body later, a body in the making, or None when the api says
nothing.

A task is work that was begun: it runs to its end even when nobody is left to hear of it. Any
other future only waits, and is cancelled when the connection is gone.
"""


def frame_parts(body: BodyParts, *, api: int, version: int, correlation_id: int) -> list[ReplyPart]:
    """The whole response frame, the first bytes of its body joined to its header."""
    header = response_header(
        api=api, version=version, correlation_id=correlation_id, body_size=body.size
    )
    return [header, *body.parts]
