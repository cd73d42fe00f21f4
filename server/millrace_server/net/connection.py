"""One connection: requests in, answers out in the same order, within its limits.

Owns the life of a connection and decides when it is read, when its handler is called and when
it ends. Knows no dialect: frames and lines go to a `RequestHandler`. The parts do the work:
`FrameReader` cuts the input, `ResponseQueue` keeps the order, `Output` sends, `MemoryAccount`
counts the memory, `ConnectionTimeouts` the time.

    OPEN -----> FINISHING -----> LINGERING -----> CLOSED
    requests    answers are      our side ended,   lost or aborted,
    are taken   still sent       input discarded   from any phase

Everything that can make progress possible (bytes arrived, an answer is ready, the peer read,
memory was granted) leads to `_advance`, which takes requests while there is room and sends what
can be sent. No task, timer or lock belongs to a connection.

A peer that sends a request now and then is answered at once. One that has more to do than fits
into `DIRECT_MS` goes on in turns with all others of its kind (`FairScheduler`), and for `TURNS_MS`
what it sends waits for its turn from the start: requests of busy connections run between those of
quiet ones, and not before them.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Generator
from functools import partial
from typing import cast

from millrace_server.environment.seams import Reply, release_slices
from millrace_server.loop.fair_scheduler import Later, Pieces
from millrace_server.net.chunked_work import Work
from millrace_server.net.connection_timeouts import ConnectionTimeouts, Sight
from millrace_server.net.frame_reader import FrameLengthError, FrameReader, LineLengthError
from millrace_server.net.memory_account import UNGATED_BYTES, MemoryAccount
from millrace_server.net.output import Output, OutputError
from millrace_server.net.response_queue import ResponseQueue, Slot
from millrace_server.net.shared import Shared
from millrace_server.net.socket_transport import SocketWire, TransportWire
from millrace_server.net.stream import Stream

DIRECT_REQUESTS = 64
"""One read can hold thousands of small requests; other connections go in between."""
DIRECT_MS = 1
"""Requests of one read are answered at once for so long at most, and at least two of them. The
clock counts whole milliseconds: half of one is usual."""
CROWDED_REQUESTS = 2
"""Of one read at once while others wait for their turn: a hundred connections that each took
`DIRECT_MS` would make who asks for little wait for all of them."""
TURN_REQUESTS, TURN_MS = 16, 1
"""The same when it is the connection's turn."""
TURNS_MS = 1_000
"""So long a connection that needed more than `DIRECT_MS` takes its turns."""
STREAM_BYTES = 64 << 10
"""A stream is asked to pause when this much of its connection's output is in memory."""


class Phase(enum.Enum):
    """Where a connection is in its life; the module draws the order."""

    OPEN = enum.auto()
    FINISHING = enum.auto()
    LINGERING = enum.auto()
    CLOSED = enum.auto()


class Connection(asyncio.BufferedProtocol):
    """One peer. Dialects may read the public attributes and set `client_id` and `session`."""

    __slots__ = (
        "_advance_due",
        "_allowance",
        "_answers",
        "_input_ended",
        "_intake",
        "_more",
        "_output",
        "_patience",
        "_paused",
        "_phase",
        "_room_waiters",
        "_shared",
        "_streams",
        "_taking",
        "_transport",
        "_turn_due",
        "_turns_until_ms",
        "_wire",
        "_work",
        "bytes_in",
        "client_id",
        "close_reason",
        "peer",
        "requests",
        "session",
    )

    _transport: asyncio.Transport
    _wire: SocketWire | TransportWire
    _output: Output
    _answers: ResponseQueue
    _patience: ConnectionTimeouts

    def __init__(self, shared: Shared) -> None:
        limits = shared.limits
        self._shared = shared
        self._intake = FrameReader(
            shared.scratch,
            frame_bytes_max=limits.frame_bytes_max_before_hello,
            line_bytes_max=limits.line_bytes_max,
        )
        self._phase = Phase.OPEN
        self._streams: list[tuple[Stream, Slot]] = []
        self._room_waiters: list[asyncio.Future[None]] = []
        self._allowance = MemoryAccount(
            shared.memory, limits.buffered_bytes_max, self._memory_granted
        )
        self._more = False
        """Requests may be left in the intake."""
        self._taking = False
        self._advance_due = False
        self._work = Work()
        self._turn_due = False
        self._turns_until_ms = 0
        self._paused = False
        self._input_ended = False
        self.peer = ""
        self.client_id = ""
        self.session: object | None = None
        """Whatever the dialect remembers of this connection."""
        self.requests = 0
        self.bytes_in = 0
        self.close_reason = ""

    # What a dialect calls

    @property
    def bytes_out(self) -> int:
        return self._output.bytes_sent

    @property
    def text(self) -> bool | None:
        """Whether the peer speaks text; None until its first byte."""
        return self._intake.text

    @property
    def closed(self) -> bool:
        return self._phase is Phase.CLOSED

    @property
    def unanswered_count(self) -> int:
        """Requests taken and not answered; not counting one that is being handled."""
        return len(self._answers)

    @property
    def held_bytes(self) -> int:
        """Memory of requests in progress and of answers not yet sent, but not of a request
        that is still being received."""
        return self._answers.held_bytes + self._output.held_bytes

    def greeted(self) -> None:
        """Lifts the limit on frames that holds for strangers."""
        self._intake.frame_bytes_max = self._shared.limits.frame_bytes_max

    def stream(self) -> Stream:
        """Opens an answer that is sent piece by piece, for the handler to return."""
        slot = self._answers.open(0)
        stream = Stream(self, slot)
        self._streams.append((stream, slot))
        return stream

    def finish(self, reason: str) -> None:
        """Takes no more requests, ends streams, sends the answers that are due, then closes.

        May be called while a request is handled; its answer is still sent.
        """
        if self._phase is not Phase.OPEN:
            return
        self._phase = Phase.FINISHING
        self.close_reason = reason
        self._stop_intake()
        for stream, slot in self._streams:
            stream.ended = True
            self._answers.complete(slot, [])
        self._streams.clear()
        self._advance_soon()

    def abort(self, reason: str) -> None:
        """Closes at once; what was not sent is dropped."""
        if self._phase is Phase.CLOSED:
            return
        self._phase = Phase.CLOSED
        self.close_reason = self.close_reason or reason
        self._transport.abort()

    # What a stream calls

    def send_piece(self, slot: Slot, parts: Reply) -> bool:
        """See `Stream.send`."""
        self._answers.add(slot, parts)
        if self.held_bytes > self._shared.limits.buffered_bytes_max:
            self.abort("a stream sent more than the connection may hold")
            return False
        self._advance_soon()
        return (
            self._output.held_bytes < STREAM_BYTES
            and self._output.unsent_replies < self._shared.limits.inflight_requests_max
        )

    def room(self) -> asyncio.Future[None]:
        """See `Stream.room`."""
        waiter = self._shared.loop.create_future()
        if self._phase is Phase.CLOSED or self._output.empty:
            waiter.set_result(None)
        else:
            self._room_waiters.append(waiter)
        return waiter

    def end_stream(self, stream: Stream, slot: Slot, parts: Reply) -> None:
        """See `Stream.finish`."""
        stream.ended = True
        self._streams.remove((stream, slot))
        self._answers.complete(slot, parts)
        self._advance_soon()

    # What the server calls

    def look(self, now_ms: int) -> None:
        """Ends the connection when a time limit has passed."""
        if self._phase is Phase.CLOSED:
            return
        output = self._output
        overdue = self._patience.overdue(
            now_ms,
            Sight(
                requests=self.requests,
                bytes_in=self.bytes_in,
                bytes_out=output.bytes_sent,
                partial=self._intake.partial and not self._paused,
                hoards=self._hoards(),
                owes=bool(self._answers) or not output.empty,
                waits_for_peer=output.waits_for_peer,
                input_ended=self._input_ended,
                lingers=self._phase is Phase.LINGERING,
            ),
        )
        if overdue is not None:
            self.abort(overdue)

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shared = self._shared
        self._transport = cast("asyncio.Transport", transport)
        self.peer = _peer_name(transport.get_extra_info("peername"))
        borrowed = transport.get_extra_info("socket")
        if borrowed is None or transport.get_extra_info("sslcontext") is not None:
            self._wire = TransportWire(self._transport, shared.loop)
        else:
            self._wire = SocketWire(borrowed.fileno(), shared.loop)
        self._output = Output(
            self._wire,
            turns=shared.turns,
            spawn=shared.spawn,
            cold_reads=shared.cold_reads,
            wake=self._advance,
        )
        self._answers = ResponseQueue(self._output)
        self._patience = ConnectionTimeouts(shared.limits, shared.clock.monotonic_ms())
        if not shared.owner.opened(self):
            limit = shared.limits.connections_max
            self._answers.reply(shared.handler.refuse_connection(self, limit))
            self.finish(f"there are {limit} connections already")

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._phase is Phase.OPEN:
            return self._intake.buffer()
        return self._shared.scratch.view

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_in += nbytes
        if self._phase is not Phase.OPEN:
            return
        self._intake.received(nbytes)
        self._advance()
        self._intake.put_away()

    def eof_received(self) -> bool:
        self._input_ended = True
        if self._phase is Phase.LINGERING:
            return False
        self._advance()
        return self._wire.survives_eof and self._phase is not Phase.CLOSED

    def pause_writing(self) -> None:
        if isinstance(self._wire, TransportWire):
            self._wire.pause()

    def resume_writing(self) -> None:
        if isinstance(self._wire, TransportWire):
            self._wire.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        # The descriptor is still open here; it is closed after this returns.
        self._phase = Phase.CLOSED
        self.close_reason = self.close_reason or (str(exc) if exc else "the peer closed")
        self._stop_intake()
        self._work.close()
        left = self._output.close()
        left.extend(self._answers.close())
        self._shared.remains.take(left, self._allowance.close)
        for stream, _ in self._streams:
            stream.ended = True
        self._streams.clear()
        self._wake_room_waiters()
        self._shared.owner.lost(self)
        self._shared.handler.closed(self)

    # Taking requests

    def _advance(self, *, in_turn: bool = False) -> None:
        """Takes requests while there is room and sends what can be sent."""
        self._advance_due = False
        if self._phase is Phase.CLOSED or self._taking:
            return
        before = self.requests
        if self._phase is Phase.OPEN and not self._turn_due:
            if self._turns_until_ms and not in_turn and self._takes_turns():
                self._more = True
                self._enter_turn()
            else:
                self._taking = True
                try:
                    if in_turn:
                        self._take_requests(TURN_REQUESTS, TURN_MS)
                    elif self._shared.turns.is_waited_for:
                        self._take_requests(CROWDED_REQUESTS, DIRECT_MS)
                    else:
                        self._take_requests(DIRECT_REQUESTS, DIRECT_MS)
                except Exception as error:
                    self._report(error)
                    return
                finally:
                    self._taking = False
        self._send()
        if not in_turn and self.requests > before and self._is_done_with():
            self._shared.turns.keep_apart()

    def _on_turn(self) -> None:
        """A turn: answers that waited, one piece of the work that is left, or some requests."""
        self._turn_due = False
        if self._phase is Phase.CLOSED:
            return
        if self._answers.is_behind:
            self._answers.move_on()
            self._send()
            return
        if not self._work.waiting:
            self._advance(in_turn=True)
            return
        try:
            made = self._work.step()
        except Exception as error:
            self._report(error)
            return
        if made is not None:
            slot, answer = made
            if isinstance(answer, asyncio.Future):
                answer.add_done_callback(partial(self._answered, slot))
            else:
                self._answers.complete(slot, answer)
        elif self._work.held_by is not None:
            self._work.held_by.add_done_callback(self._go_on)
        self._send()

    def _go_on(self, _: object) -> None:
        """What the work in pieces waited for is done."""
        self._work.held_by = None
        if self._phase is not Phase.CLOSED:
            self._enter_turn()

    def _send(self) -> None:
        try:
            self._output.pump()
        except OutputError as error:
            self.abort(str(error))
            return
        self._settle()

    def _take_requests(self, count_max: int, turn_ms: int) -> None:
        """Takes up to `count_max` requests, for about `turn_ms`."""
        intake = self._intake
        handler = self._shared.handler
        self._more = True
        for taken in range(count_max):
            if self._phase is not Phase.OPEN or not self._has_room():
                return
            # One request by itself, which is what most reads hold, never looks at the clock.
            if taken and intake.partial:
                now_ms = self._shared.clock.monotonic_ms()
                if taken == 1:
                    began_ms = now_ms
                elif now_ms - began_ms >= turn_ms:
                    self._turns_until_ms = now_ms + TURNS_MS
                    return
            try:
                if intake.text:
                    line = intake.next_line()
                    if line is None and self._input_ended:
                        line = intake.last_line()
                    if line is None:
                        break
                    self.requests += 1
                    self._answer(handler.line(self, line), len(line))
                else:
                    frame = intake.next_frame()
                    if frame is None:
                        break
                    self.requests += 1
                    size = len(frame)
                    if intake.owned:
                        self._allowance.end_frame()
                        self._answer(handler.frame(self, frame, True), size)
                    else:
                        self._answer(handler.frame(self, frame, False), size)
                        # A handler that kept the view would read other connections' bytes.
                        frame.release()
            except FrameLengthError as error:
                self._answers.reply(handler.refuse_frame_length(self, error.length))
                self.finish(str(error))
                return
            except LineLengthError:
                limit = self._shared.limits.line_bytes_max
                self._answers.reply(handler.refuse_line_length(self, limit))
                self.finish(f"a line of more than {limit} bytes")
                return
        else:
            return
        self._more = False
        wanted = intake.private_bytes_wanted
        if wanted and self._allowance.place_frame(wanted, self.held_bytes):
            intake.allocate()

    def _answer(
        self,
        answer: Reply | Later | Pieces | Stream | None,
        request_bytes: int,
    ) -> None:
        if type(answer) is list:
            self._answers.reply(answer)
        elif isinstance(answer, asyncio.Future):
            slot = self._answers.open(request_bytes)
            answer.add_done_callback(partial(self._answered, slot))
        elif isinstance(answer, Generator):
            self._work.add(answer, self._answers.open(request_bytes))
        elif answer is not None and not isinstance(answer, Stream):
            raise TypeError(
                f"an answer is a list, a future, pieces, a stream or None, not {answer!r}"
            )

    def _answered(self, slot: Slot, answer: Later) -> None:
        if answer.cancelled():
            self.abort("the answer was cancelled")
            return
        error = answer.exception()
        if error is not None:
            self._report(error)
            return
        result = answer.result()
        if isinstance(result, Generator):
            if self._phase is Phase.CLOSED:
                result.close()
                return
            self._work.add(result, slot)
            self._enter_turn()
            return
        if self._phase is Phase.CLOSED:
            release_slices(result)
            return
        self._answers.complete(slot, result)
        # One fsync answers many requests: their answers leave together.
        if self._answers:
            self._advance_soon()
        else:
            self._advance()

    def _has_room(self) -> bool:
        """Whether one more request may be taken."""
        shared = self._shared
        limits = shared.limits
        output = self._output
        return (
            not self._work.waiting
            and len(self._answers) + output.unsent_replies < limits.inflight_requests_max
            and self.held_bytes < limits.buffered_bytes_max
            and (output.empty or not shared.memory.exhausted)
        )

    def _memory_granted(self) -> None:
        self._intake.allocate()
        self._advance_soon()

    def _stop_intake(self) -> None:
        self._intake.discard()
        self._more = False
        self._allowance.drop_frame()

    # Reading or not, and ending

    def _settle(self) -> None:
        """Draws the consequences of what `_advance` did."""
        self._allowance.settle(self.held_bytes)
        owes = bool(self._answers) or not self._output.empty
        if self._room_waiters and self._output.empty:
            self._wake_room_waiters()
        if self._answers.is_behind or (self._work.waiting and self._work.held_by is None):
            self._enter_turn()
        if self._phase is not Phase.OPEN:
            self._pause_reading(False)
            if not owes:
                self._shut()
            return
        has_room = self._has_room()
        if self._more and has_room:
            self._enter_turn()
        if self._input_ended:
            if not owes and not self._more:
                self._transport.close()
            return
        self._pause_reading(self._more or self._allowance.waits or not has_room)

    def _pause_reading(self, pause: bool) -> None:
        if pause is self._paused or self._input_ended or self._transport.is_closing():
            return
        self._paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _shut(self) -> None:
        """Ends our side; the peer's unread input is discarded until it ends its own."""
        if self._phase is Phase.LINGERING:
            return
        self._phase = Phase.LINGERING
        try:
            lingers = not self._input_ended and self._wire.shut()
        except OSError:
            lingers = False
        if not lingers:
            self._transport.close()

    def _advance_soon(self) -> None:
        if not self._advance_due:
            self._advance_due = True
            self._shared.loop.call_soon(self._advance)

    def _hoards(self) -> bool:
        """Whether an unfinished frame holds memory that others wait for."""
        return (
            self._allowance.frame_bytes > UNGATED_BYTES
            and not self._paused
            and self._shared.memory.waiting_count > 0
        )

    def _takes_turns(self) -> bool:
        """Whether what has come waits for the connection's turn."""
        return self._intake.partial and self._shared.clock.monotonic_ms() < self._turns_until_ms

    def _is_done_with(self) -> bool:
        """Whether of what has come nothing is left to be done now."""
        return self._output.empty and not (self._turn_due or self._more or self._work.waiting)

    def _enter_turn(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._shared.turns.enter(self._on_turn)

    def _wake_room_waiters(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _report(self, error: BaseException) -> None:
        self._shared.loop.call_exception_handler(
            {
                "message": f"answering {self.peer} failed",
                "exception": error,
                "protocol": self,
                "transport": self._transport,
            }
        )
        self.abort(f"a bug in the broker: {error!r}")


def _peer_name(address: object) -> str:
    match address:
        case (str(host), int(port)):
            return f"{host}:{port}"
        case (str(host), int(port), _, _):
            return f"[{host}]:{port}"
    return "local" if not address else str(address)
