"""Responses in the order of their requests, whatever order they become ready in.

Owns the places of responses that are due and what they hold in memory. Does not know how a
response is made or sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from millrace_server.environment.seams import FileSlice, Response, ResponsePart
from millrace_server.net.output import Output
from millrace_server.net.pending_response import PendingResponse

MOVED_PARTS = 2_000
"""Moved to the output at once, in some 300 us. Many responses of thousands of parts each may have
waited for one."""


class ResponseQueue:
    """The pending responses of one connection.

    Only the first one's parts go to the output; those of later ones wait. `held_bytes` is what
    requests without a response, and responses before their turn, hold in memory.
    """

    __slots__ = ("_output", "_pending", "held_bytes")

    def __init__(self, output: Output) -> None:
        self._output = output
        self._pending: deque[PendingResponse] = deque()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[PendingResponse]:
        return iter(self._pending)

    @property
    def last(self) -> PendingResponse:
        """The place of the last request; there is one."""
        return self._pending[-1]

    @property
    def is_yielding(self) -> bool:
        """Whether the coroutine of the last request waits for the fair scheduler."""
        return bool(self._pending) and self._pending[-1].is_yielding

    @property
    def is_behind(self) -> bool:
        """Whether responses that are complete and next wait for another `move_on`."""
        return bool(self._pending) and self._pending[0].is_complete

    def respond(self, response: Response) -> None:
        """Adds a response that is ready."""
        if not self._pending:
            self._output.append(response)
            return
        place = PendingResponse(None, None, 0)
        place.is_complete = True
        self._pending.append(place)
        self.add(place, response)

    def open(self, pending: PendingResponse) -> None:
        """Adds the place of a response that is not ready."""
        self._pending.append(pending)
        self.held_bytes += pending.request_bytes

    def add(self, pending: PendingResponse, parts: Response) -> None:
        """Puts parts into a place; they go on at once when it is the first."""
        if pending is self._pending[0]:
            self._output.append(parts)
        else:
            pending.parts.extend(parts)
            self.held_bytes += _memory_bytes(parts)

    def complete(self, pending: PendingResponse, parts: Response) -> None:
        """Adds the last parts of a place, and moves on what waited behind it."""
        self.add(pending, parts)
        pending.is_complete = True
        self.move_on()

    def move_on(self) -> None:
        """Gives the output the responses that are next, until these are `MOVED_PARTS` or more."""
        places = self._pending
        moved = 0
        while places and places[0].is_complete and moved < MOVED_PARTS:
            self.held_bytes -= places.popleft().request_bytes
            if places and places[0].parts:
                waited, places[0].parts = places[0].parts, []
                self.held_bytes -= _memory_bytes(waited)
                self._output.append(waited)
                moved += len(waited)

    def close(self) -> Iterator[ResponsePart]:
        """Ends what is pending; returns the parts that were not sent, whose slices the caller
        releases."""
        for pending in self._pending:
            pending.close()
        unsent = chain.from_iterable([pending.parts for pending in self._pending])
        self._pending.clear()
        self.held_bytes = 0
        return unsent


def _memory_bytes(parts: Iterable[ResponsePart]) -> int:
    return sum(len(part) for part in parts if not isinstance(part, FileSlice))
