"""Work that has to wait for others: one queue for a whole broker, a little of it at a time.

Owns the order and the pace. Knows nothing of what the work is: whoever has more to do than one
small request enters a piece of it, and enters again behind all others when there is more.

    passes of the event loop:  piece, sockets | sockets | sockets | ... | sockets | piece, sockets

So a client that asks for little waits for one piece in every few passes that its request takes (an
append that is acked from the disk takes some ten), however much the others have asked for, and
those divide what is left by pieces and not by how much they ask.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from millrace_server.environment.seams import Reply

T = TypeVar("T")

Pause = asyncio.Future[Any] | None
"""Where work in pieces lets others go first: until its next turn, or, if it is a future, until that
is done. Whoever yielded it looks at its outcome."""

Pieces = Generator[Pause, None, "Reply | asyncio.Future[Reply | Pieces] | None"]
"""An answer that takes long to make: it yields where others may go first, some 200 us apart, and
returns what a handler returns. It is closed when its connection is lost before it ends."""

Later = asyncio.Future[Reply] | asyncio.Future[Reply | Pieces]
"""An answer that is not made yet."""


PASSES_BETWEEN = 7
"""Passes of the loop without a piece after one, of some 10 us each, while others ask for little: a
step that leads to another, as an append does to a flush and that to an answer, waits for few."""
PIECES_APART = 64
"""So many pieces keep that distance after somebody has asked for little. Where all ask for much, no
pass is left out."""
NAME_LENGTH = 256
"""No name that there is, is longer; one that is takes longer to read, refuse and repeat."""


def cut(entries: Sequence[T], entries_max: int, name_of: Callable[[T], str]) -> Iterator[list[T]]:
    """Entries in pieces of up to `entries_max`, of which a long name counts for several."""
    piece: list[T] = []
    weight = 0
    for entry in entries:
        piece.append(entry)
        weight += 1 + len(name_of(entry)) // NAME_LENGTH
        if weight >= entries_max:
            yield piece
            piece, weight = [], 0
    if piece:
        yield piece


def done(work: asyncio.Task[T]) -> Generator[Pause, None, T]:
    """Pauses until the task is done, and returns its result; closing it cancels the task."""
    try:
        yield work
    except GeneratorExit:
        if not work.cancel() and not work.cancelled():
            # Looked at, or the loop would log that nobody did.
            work.exception()
        raise
    return work.result()


class FairScheduler:
    """Calls what was entered, in order, at most one call in each pass of the loop."""

    __slots__ = ("_apart", "_due", "_loop", "_passes_left", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._due = False
        self._passes_left = 0
        self._apart = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._waiting)

    async def turn(self) -> None:
        """Returns when the calling task has its turn, which lasts until it waits for something."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self.enter(partial(_begin, turn))
        await turn

    def enter(self, piece: Callable[[], None]) -> None:
        """Calls `piece` once when its turn comes."""
        self._waiting.append(piece)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._run)

    def keep_apart(self) -> None:
        """Somebody asked for so little that it took no turn: what that leads to goes first."""
        self._apart = PIECES_APART

    def _run(self) -> None:
        if not (self._waiting or self._passes_left):
            self._due = False
            return
        # Before the piece, which may raise.
        self._loop.call_soon(self._run)
        if self._passes_left:
            self._passes_left -= 1
            return
        if self._apart:
            self._apart -= 1
            self._passes_left = PASSES_BETWEEN
        piece = self._waiting.popleft()
        piece()


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
