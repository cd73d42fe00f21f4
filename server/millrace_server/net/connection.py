"""One connection: requests in, responses out in the same order, within its limits.

Owns the life of a connection, and decides when it is read, when a request is handled and when it
ends. Does not know any wire format: requests go to the session of its dialect. The parts do the
work: `RequestInput` cuts the input into requests, `ResponseQueue` keeps the order, `Output` sends,
`ConnectionTimeouts` counts the time.

Everything that makes progress possible (bytes arrived, a response is ready, the peer read, memory
was granted) leads to `_advance`, which takes requests while there is room and sends what can be
sent. A connection has no task and no lock, and a timer only while its client is held back.
A small request is handled in the pass of the loop in which it arrives. A connection that sends
more than `REQUESTS_AT_ONCE`, or what takes longer than `AT_ONCE_NS`, continues when the fair
scheduler calls it, and is not read meanwhile: requests of quiet connections are handled in between.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from millrace_server.environment.seams import Response
from millrace_server.listeners import ListenerConfig
from millrace_server.loop.completion import Completion
from millrace_server.net.connection_phase import CLOSED, FINISHING, LINGERING, OPEN, Phase
from millrace_server.net.connection_timeouts import Activity, ConnectionTimeouts
from millrace_server.net.dialect import Session
from millrace_server.net.output import Output, OutputError
from millrace_server.net.pending_response import PendingResponse
from millrace_server.net.request_input import RequestInput, UnknownDialect
from millrace_server.net.response_queue import ResponseQueue
from millrace_server.net.shared import Shared
from millrace_server.net.socket_transport import Wire, peer_name, wire_of
from millrace_server.net.tls import principal_of
from millrace_wire.frame_reader import FramingError

REQUESTS_AT_ONCE = 64
"""One read can hold thousands of small requests; other connections go in between."""
AT_ONCE_NS = 400_000
"""Nor are requests handled for longer, but for the one that is begun."""
REQUESTS_WHEN_BUSY = 2
WHEN_BUSY_NS = 100_000
"""The same while chunks of other connections wait to run."""
STREAM_BYTES = 64 << 10
"""A stream pauses when this much of its connection's output is in memory."""


class Owner(Protocol):
    """The server, as a connection knows it."""

    def opened(self, connection: Connection) -> str:
        """Takes note of a new connection; why it is refused, or an empty text."""

    def admit(self, connection: Connection, principal: str) -> str:
        """Takes note of who has authenticated; why it is refused, or an empty text."""

    def lost(self, connection: Connection) -> None:
        """The connection is gone."""


class Connection(asyncio.BufferedProtocol):
    """One peer. Sessions of dialects use the public attributes and methods."""

    __slots__ = (
        "_advance_due",
        "_drained",
        "_input",
        "_is_handling",
        "_is_paused",
        "_is_scheduled",
        "_output",
        "_owner",
        "_phase",
        "_refusal",
        "_responses",
        "_shared",
        "_timeouts",
        "_transport",
        "_wire",
        "close_reason",
        "listener",
        "peer",
        "principal",
    )

    _transport: asyncio.Transport
    _wire: Wire
    _output: Output
    _responses: ResponseQueue
    _timeouts: ConnectionTimeouts
    principal: str

    def __init__(self, shared: Shared, owner: Owner, listener: ListenerConfig) -> None:
        self._owner = owner
        self._shared = shared
        self._input = RequestInput(shared, self._advance_soon)
        self._phase: Phase = OPEN
        self._drained: Completion[None] | None = None
        self._is_scheduled = False  # The fair scheduler will call `_continue`.
        self._advance_due = self._is_handling = self._is_paused = False
        self.listener, self.peer, self.close_reason, self._refusal = listener, "", "", ""

    # What a session calls

    @property
    def bytes_in(self) -> int:
        return self._input.bytes_received

    @property
    def bytes_out(self) -> int:
        return self._output.bytes_sent

    @property
    def closed(self) -> bool:
        return self._phase is CLOSED

    @property
    def held_bytes(self) -> int:
        """Memory of requests in progress and of unsent responses, not of what is received."""
        return self._responses.held_bytes

    def lift_frame_limit(self) -> None:
        """The peer has greeted, and authenticated where it must: its frames may be large."""
        self._timeouts.is_authenticated = True
        self._input.reader.frame_bytes_max = self._shared.limits.frame_bytes_max

    def stream(self) -> PendingResponse:
        """The response of the request that is being handled, to be sent part by part.

        For a coroutine in its first step. Further requests are taken meanwhile, and their responses
        wait; `finish` ends the stream.
        """
        return self._responses.stream(self)

    def send_part(self, stream: PendingResponse, parts: Response) -> bool:
        """Sends a part of a stream.

        False asks the caller to await `drained` before the next part. A caller that does not is cut
        off at the connection's memory limit.
        """
        self._responses.add(stream, parts)
        if self.held_bytes > self._shared.limits.buffered_bytes_max:
            self.abort("a stream sent more than the connection may hold")
            return False
        self._advance_soon()
        return (
            self._output.held_bytes < STREAM_BYTES
            and self._output.unsent_replies < self._shared.limits.inflight_requests_max
        )

    def drained(self) -> Completion[None]:
        """Done when everything that was sent has left."""
        if self._drained is None:
            self._drained = Completion()
        return self._drained

    def hold_back(self, until_ms: int) -> None:
        """Takes no further request before that moment of the monotonic clock."""
        if self._phase is OPEN:
            self._input.hold_back(until_ms)

    def admit(self, principal: str) -> str:
        """The peer has proved that it is `principal`; why it is refused, or an empty text."""
        return self._owner.admit(self, principal)

    def finish(self, reason: str) -> None:
        """Takes no more requests, ends streams, sends the responses that are due, then closes.

        A request that is handled may call it, or a stream that returns next: its response is sent.
        """
        if self._phase is not OPEN:
            return
        self._phase = FINISHING
        self.close_reason = reason
        self._input.discard()
        for pending in self._responses.waiting_streams():
            pending.close()
            self._responses.complete(pending, [])
        self._advance_soon()

    def abort(self, reason: str) -> None:
        """Closes at once; what was not sent is dropped."""
        if self._phase is CLOSED:
            return
        self._phase = CLOSED
        self.close_reason = self.close_reason or reason
        self._transport.abort()

    # What a pending response calls

    def on_response(self, pending: PendingResponse, response: Response) -> None:
        """See `Responder`. Responses that one event completes leave together."""
        self._responses.complete(pending, response)
        if self._is_handling:
            return
        if self._responses.pending:
            self._advance_soon()
        else:
            self._advance()

    def on_waiting(self, pending: PendingResponse) -> None:
        """See `Responder`."""
        if not self._is_handling:
            self._advance_soon()

    def on_failure(self, pending: PendingResponse, error: BaseException) -> None:
        """See `Responder`."""
        if isinstance(error, asyncio.CancelledError):
            self.abort("the broker stops")
        else:
            self._report(error)

    # What the server calls

    def check_timeouts(self, now_ms: int) -> None:
        """Ends the connection when a time limit has passed."""
        if self._phase is CLOSED:
            return
        source, output = self._input, self._output
        overdue = self._timeouts.overdue(
            now_ms,
            Activity(
                requests=source.requests,
                bytes_in=source.bytes_received,
                bytes_out=output.bytes_sent,
                partial=source.reader.unread_bytes > 0 and not self._is_paused,
                holds_scarce_memory=source.holds_scarce_memory and not self._is_paused,
                response_due=bool(self._responses.pending or output.unsent),
                waits_for_peer=output.waits_for_peer,
                input_ended=source.is_ended,
                lingers=self._phase is LINGERING,
            ),
        )
        if overdue is not None:
            self.abort(overdue)

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        shared = self._shared
        self._transport = cast("asyncio.Transport", transport)
        self.principal = principal_of(self._transport)
        self._wire = wire_of(self._transport, shared.loop)
        self.peer = peer_name(self._transport)
        self._output = Output(
            self._wire,
            scheduler=shared.scheduler,
            spawn=shared.spawn,
            cold_reads=shared.cold_reads,
            traffic=shared.traffic,
            wake=self._advance,
        )
        self._responses = ResponseQueue(self._output, shared.limits, shared.memory)
        self._timeouts = ConnectionTimeouts(shared.limits, shared.clock.monotonic_ms())
        self._timeouts.is_authenticated = not self.listener.is_sasl
        self._refusal = self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._phase is OPEN:
            return self._input.reader.buffer()
        return self._shared.scratch.view

    def buffer_updated(self, nbytes: int) -> None:
        if self._phase is not OPEN:
            self._input.bytes_received += nbytes
            self._shared.traffic.received_bytes += nbytes
            return
        self._input.received(nbytes)
        self._advance()
        self._input.reader.release_scratch()

    def eof_received(self) -> bool:
        self._input.is_ended = True
        if self._phase is LINGERING:
            return False
        self._advance()
        return self._wire.survives_eof and self._phase is not CLOSED

    def pause_writing(self) -> None:
        if self.peer:  # Else the wire is being made, and looks for itself.
            self._wire.pause()

    def resume_writing(self) -> None:
        self._wire.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        # The descriptor is still open here; it is closed after this returns.
        self._phase = CLOSED
        self.close_reason = self.close_reason or (str(exc) if exc else "the peer closed")
        self._input.disconnect()
        unsent = self._output.close()
        unsent.extend(self._responses.close())
        if self._drained is not None:
            self._drained.cancel()
            self._drained = None
        self._owner.lost(self)
        self._shared.deferred_release.take(unsent, self._input.account.close)

    # Taking requests

    def _advance(self) -> None:
        """Takes requests while there is room, and sends what can be sent."""
        self._advance_due = False
        if self._phase is CLOSED or self._is_handling:
            return
        if self._phase is OPEN and not self._is_scheduled and self._input.reader.unread_bytes:
            self._handle_requests(is_busy=self._shared.scheduler.is_busy)
        self._send()

    def _continue(self) -> None:
        """The fair scheduler's call: responses that waited, or some more requests."""
        self._is_scheduled = False
        if self._phase is CLOSED:
            return
        if self._responses.is_behind:
            self._responses.move_on()
        elif self._phase is OPEN:
            self._handle_requests(is_busy=False)
        self._send()

    def _handle_requests(self, *, is_busy: bool) -> None:
        self._is_handling = True
        try:
            if is_busy:
                self._take_requests(REQUESTS_WHEN_BUSY, WHEN_BUSY_NS)
            else:
                self._take_requests(REQUESTS_AT_ONCE, AT_ONCE_NS)
        except FramingError as error:
            session = self._input.session
            assert session is not None
            self._responses.respond(session.refuse(error))
            self.finish(str(error))
        except UnknownDialect as error:
            self.abort(str(error))
        except Exception as error:
            self._report(error)
        finally:
            self._is_handling = False

    def _take_requests(self, count_max: int, time_ns: int) -> None:
        """Takes up to `count_max` requests; no further one begins after `time_ns`."""
        source = self._input
        session = source.session or self._open_session()
        if session is None:
            source.has_more = False
            return
        responses, reader, ends_ns = self._responses, source.reader, 0
        now_ns = self._shared.clock.monotonic_ns
        source.has_more = True
        for _ in range(count_max):
            if self._phase is not OPEN or source.held is not None:
                return
            if not responses.has_room(session, reader):
                return
            request = source.next_request(session, responses)
            if request is None:
                return
            source.has_more = reader.unread_bytes > 0
            if source.has_more and not ends_ns:
                ends_ns = now_ns() + time_ns
            owned = reader.owned
            responses.take(session.handle(request, owned=owned), len(request), self)
            if not owned and isinstance(request, memoryview):
                # A handler that kept the view would read other connections' bytes.
                request.release()
            if not source.has_more or now_ns() >= ends_ns:
                return

    def _open_session(self) -> Session | None:
        session = self._input.open_session(self)
        if session is not None and self._refusal:
            self._responses.respond(session.refuse_connection(self._refusal))
            self.finish(self._refusal)
        return session

    # Sending, reading or not, and ending

    def _send(self) -> None:
        source, output, responses = self._input, self._output, self._responses
        try:
            output.pump()
        except OutputError as error:
            self.abort(str(error))
            return
        if self._phase is CLOSED:
            return
        source.account.settle(responses.held_bytes)
        is_idle = not (responses.pending or output.unsent)
        if self._drained is not None and not output.unsent:
            drained, self._drained = self._drained, None
            drained.complete(None)
        if not is_idle and responses.is_behind:
            self._enter_scheduler()
        if self._phase is not OPEN:
            self._pause_reading(False)
            if is_idle:
                self._end_output()
            return
        session = source.session
        has_room = source.held is None and (
            is_idle or session is None or responses.has_room(session, source.reader)
        )
        if source.has_more and has_room:
            self._enter_scheduler()
        if source.is_ended:
            if is_idle and not source.has_more:
                self._transport.close()
            return
        self._pause_reading(source.has_more or not has_room or source.account.waits)

    def _pause_reading(self, pause: bool) -> None:
        if pause is self._is_paused or self._input.is_ended or self._transport.is_closing():
            return
        self._is_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _end_output(self) -> None:
        """Ends our side; the peer's unread input is discarded until it ends its own."""
        if self._phase is LINGERING:
            return
        self._phase = LINGERING
        try:
            lingers = not self._input.is_ended and self._wire.shut()
        except OSError:
            lingers = False
        if not lingers:
            self._transport.close()

    def _advance_soon(self) -> None:
        if not self._advance_due:
            self._advance_due = True
            self._shared.loop.call_soon(self._advance)

    def _enter_scheduler(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._shared.scheduler.enter(self._continue)

    def _report(self, error: BaseException) -> None:
        self._shared.loop.call_exception_handler(
            {
                "message": f"the response to {self.peer} failed",
                "exception": error,
                "protocol": self,
                "transport": self._transport,
            }
        )
        self.abort(f"a bug in the broker: {error!r}")
