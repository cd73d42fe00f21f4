"""Fair scheduling: work that takes long runs in chunks, for a short time in each pass of the loop.

Owns the order. Does not know what the work is: a coroutine that has more to do than one small
request awaits `yield_` between two chunks of at most some 200 us, and is resumed behind all others
that wait.

    passes of the event loop:   chunk of A, sockets | chunk of B, sockets | chunk of A, sockets

A small request is answered in the pass in which it arrives, so it waits for `TURN_NS` and one chunk
at most in each pass, however much the other clients have requested; they share the time among them.

Chunks of a few microseconds run in one pass until `TURN_NS` is over. A pass for each would cost
more than the chunk. And it would keep worker threads out: one that waits for the interpreter asks
for it only when the loop has kept it for `sys.getswitchinterval()`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from millrace_server.environment.seams import Clock
from millrace_server.loop.completion import Completion

T = TypeVar("T")

TURN_NS = 200_000
"""No further chunk begins in a pass after so long."""
CHUNKS_PER_PASS = 16
"""Nor after so many, whatever the clock says."""
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
    """Calls what was entered, in order, for about `TURN_NS` in each pass of the loop."""

    __slots__ = ("_is_due", "_loop", "_now_ns", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._now_ns = clock.monotonic_ns
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
        ends_ns = self._now_ns() + TURN_NS
        try:
            for _ in range(CHUNKS_PER_PASS):
                self._waiting.popleft()()
                if not self._waiting or self._now_ns() >= ends_ns:
                    break
        finally:
            # A chunk may raise.
            self._is_due = bool(self._waiting)
            if self._is_due:
                self._loop.call_soon(self._run)
