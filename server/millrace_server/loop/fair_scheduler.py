"""Fair scheduling: work that takes long runs in chunks, and one chunk runs in a pass of the loop.

Owns the order. Does not know what the work is: a coroutine that has more to do than one small
request awaits `yield_` between two chunks of some 200 us, and is resumed behind all others that
wait.

    passes of the event loop:   chunk of A, sockets | chunk of B, sockets | chunk of A, sockets

A small request is answered in the pass in which it arrives, so it waits for one chunk at most in
each pass, however much the other clients have requested; they share the chunks among them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from millrace_server.loop.completion import Completion

T = TypeVar("T")

NAME_LENGTH = 256
"""Topic names have at most 249 characters. Longer names are refused, but parsing and echoing them
costs time, so one counts as several entries."""


def chunks(
    entries: Sequence[T], entries_max: int, name_of: Callable[[T], str]
) -> Iterator[list[T]]:
    """Entries in chunks of up to `entries_max`, of which a long name counts for several."""
    chunk: list[T] = []
    weight = 0
    for entry in entries:
        chunk.append(entry)
        weight += 1 + len(name_of(entry)) // NAME_LENGTH
        if weight >= entries_max:
            yield chunk
            chunk, weight = [], 0
    if chunk:
        yield chunk


class Turn(Completion[None]):
    """What a coroutine awaits in `FairScheduler.yield_`."""

    __slots__ = ()

    def begin(self) -> None:
        """Resumes the coroutine."""
        self.complete(None)


class FairScheduler:
    """Calls what was entered, in order, one call in each pass of the loop."""

    __slots__ = ("_is_due", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    @property
    def is_busy(self) -> bool:
        """Whether a chunk waits to run."""
        return bool(self._waiting)

    def yield_(self) -> Turn:
        """To be awaited between two chunks: other chunks run first."""
        turn = Turn()
        self.enter(turn.begin)
        return turn

    def enter(self, chunk: Callable[[], None]) -> None:
        """Calls `chunk` once, behind what was entered before."""
        self._waiting.append(chunk)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        chunk = self._waiting.popleft()
        # Before the chunk, which may raise.
        if self._waiting:
            self._loop.call_soon(self._run)
        else:
            self._is_due = False
        chunk()
