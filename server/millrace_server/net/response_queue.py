"""Responses in the order of their requests, whatever order they become ready in.

Owns the places of responses that are due, what they hold in memory, and whether there is room for
one more. Does not know how a response is made or sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from millrace_server.environment.seams import FileSlice, Response, ResponsePart
from millrace_server.limits import Limits
from millrace_server.net.dialect import Session
from millrace_server.net.memory_budget import MemoryBudget
from millrace_server.net.output import Output
from millrace_server.net.pending_response import Handled, PendingResponse, Responder
from millrace_wire.frame_reader import FrameReader

MOVED_PARTS = 2_000
"""Moved to the output at once, in some 300 us. Many responses of thousands of parts each may have
waited for one."""


class ResponseQueue:
    """The pending responses of one connection, the oldest first.

    Only the first one's parts go to the output; those of later ones wait. `waiting_bytes` is what
    requests without a response, and responses before their turn, hold in memory.
    """

    __slots__ = ("_limits", "_memory", "_output", "_stream", "pending", "waiting_bytes")

    def __init__(self, output: Output, limits: Limits, memory: MemoryBudget) -> None:
        self._output = output
        self._limits = limits
        self._memory = memory
        self._stream: PendingResponse | None = None
        """The place of the request that is being handled, if its response has become a stream."""
        self.pending: deque[PendingResponse] = deque()
        self.waiting_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Memory of requests in progress and of responses not yet sent."""
        return self.waiting_bytes + self._output.held_bytes

    @property
    def is_behind(self) -> bool:
        """Whether responses that are complete and next wait for another `move_on`."""
        return bool(self.pending) and self.pending[0].is_complete

    def has_room(self, session: Session, reader: FrameReader) -> bool:
        """Whether the next request of a session may be handled."""
        pending, output, limits = self.pending, self._output, self._limits
        if pending:
            last = pending[-1]
            if last.is_yielding or not (last.is_stream or session.may_overlap(reader)):
                return False
        elif not output.unsent:
            return True
        return (
            len(pending) + output.unsent_replies < limits.inflight_requests_max
            and self.waiting_bytes + output.held_bytes < limits.buffered_bytes_max
            and not (output.unsent and self._memory.exhausted)
        )

    def take(self, handled: Handled, request_bytes: int, responder: Responder) -> None:
        """Takes what a request of `request_bytes` has led to.

        Raises what a coroutine raises in its first step.
        """
        if handled is None:
            return
        if isinstance(handled, list):
            self.respond(handled)
            return
        # Most coroutines end in their first step, and need no place in the queue.
        try:
            awaited = handled.send(None)
        except StopIteration as end:
            stream, self._stream = self._stream, None
            if stream is None:
                self.respond(end.value)
            elif not stream.is_complete:
                self.complete(stream, end.value)
            return
        place, self._stream = self._stream, None
        if place is None:
            place = PendingResponse(responder, request_bytes)
            self.waiting_bytes += request_bytes
            self.pending.append(place)
        place.drive(handled, awaited)

    def stream(self, responder: Responder) -> PendingResponse:
        """The place of the request that is being handled, for a response in many parts."""
        stream = self._stream = PendingResponse(responder, 0)
        stream.is_stream = True
        self.pending.append(stream)
        return stream

    def waiting_streams(self) -> list[PendingResponse]:
        """Those that wait for something; one whose step is running is the caller."""
        return [each for each in self.pending if each.is_stream and not each.is_running]

    def respond(self, response: Response) -> None:
        """Adds a response that is ready."""
        if not self.pending:
            self._output.append(response)
            return
        place = PendingResponse(None, 0)
        place.is_complete = True
        self.pending.append(place)
        self.add(place, response)

    def add(self, pending: PendingResponse, parts: Response) -> None:
        """Puts parts into a place; they go on at once when it is the first."""
        if pending is self.pending[0]:
            self._output.append(parts)
        else:
            pending.parts.extend(parts)
            self.waiting_bytes += _memory_bytes(parts)

    def complete(self, pending: PendingResponse, parts: Response) -> None:
        """Adds the last parts of a place, and moves on what waited behind it."""
        self.add(pending, parts)
        pending.is_complete = True
        self.move_on()

    def move_on(self) -> None:
        """Gives the output the responses that are next, until these are `MOVED_PARTS` or more."""
        places = self.pending
        moved = 0
        while places and places[0].is_complete and moved < MOVED_PARTS:
            self.waiting_bytes -= places.popleft().request_bytes
            if places and places[0].parts:
                waited, places[0].parts = places[0].parts, []
                self.waiting_bytes -= _memory_bytes(waited)
                self._output.append(waited)
                moved += len(waited)

    def close(self) -> Iterator[ResponsePart]:
        """Ends what is pending; returns the parts that were not sent, whose slices the caller
        releases."""
        for pending in self.pending:
            pending.close()
        unsent = chain.from_iterable([pending.parts for pending in self.pending])
        self.pending.clear()
        self.waiting_bytes = 0
        return unsent


def _memory_bytes(parts: Iterable[ResponsePart]) -> int:
    return sum(len(part) for part in parts if not isinstance(part, FileSlice))
