"""Requests that wait before they have appended all their batches, and those behind them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from millrace_server.services.request_context import RequestContext


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    takers: int = 0


class AppendTurns:
    """The batches of one connection are appended in the order of its requests (W-2.6).

    A request that has to wait takes the turn of its connection first, and gives it back when its
    last batch is appended. A later request waits for the turn before its first batch.
    """

    def __init__(self) -> None:
        self.taken: dict[int, _Turn] = {}
        """Of the connections with a request that has batches to append, by the identity of the
        context, which lives as long as its requests."""

    async def take(self, context: RequestContext) -> None:
        """Waits for the turn of a request; `give_back` follows."""
        turn = self.taken.setdefault(id(context), _Turn())
        turn.takers += 1
        try:
            await turn.lock.acquire()
        except BaseException:
            self._leave(context, turn)
            raise

    def give_back(self, context: RequestContext) -> None:
        """The request appends nothing more."""
        turn = self.taken[id(context)]
        turn.lock.release()
        self._leave(context, turn)

    def _leave(self, context: RequestContext, turn: _Turn) -> None:
        turn.takers -= 1
        if not turn.takers:
            del self.taken[id(context)]
