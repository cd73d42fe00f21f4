"""Responses of one connection that are made in chunks, one after another."""

from __future__ import annotations

import asyncio
from collections import deque

from millrace_server.environment.seams import Reply
from millrace_server.loop.fair_scheduler import Pause, Pieces
from millrace_server.net.response_queue import Slot


class Work:
    """The answers of one connection that are made in pieces, one after another."""

    __slots__ = ("held_by", "waiting")

    def __init__(self) -> None:
        self.held_by: Pause = None
        """What the first of them waits for; then there is no next piece yet."""
        self.waiting: deque[tuple[Pieces, Slot]] = deque()
        """Those that are not whole yet; asked for before every request, so it is no method."""

    def add(self, pieces: Pieces, slot: Slot) -> None:
        """Queues an answer behind those that are being made."""
        self.waiting.append((pieces, slot))

    def step(self) -> tuple[Slot, Reply | asyncio.Future[Reply | Pieces]] | None:
        """Makes the next piece; when that was an answer's last, the answer and its place."""
        pieces, slot = self.waiting[0]
        try:
            self.held_by = next(pieces)
        except StopIteration as end:
            self.waiting.popleft()
            self.held_by = None
            return slot, end.value or []
        return None

    def close(self) -> None:
        """Drops every answer that was not finished."""
        while self.waiting:
            self.waiting.popleft()[0].close()
