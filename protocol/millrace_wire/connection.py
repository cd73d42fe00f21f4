"""One connection to one broker on asyncio: the shell around `FrameReader` and `RequestPipeline`.

Owns the transport, the one timer of the connection, and the futures of its callers. Decides
nothing: which bytes are a frame is the reader's, which request is sent next, which response is
whose, and what is overdue is the pipeline's.

Lives from `connect` until `close` or the first fault. Then every pending request, and every later
one, fails with that fault, and the connection is in no reference cycle. No task belongs to a
connection or to a request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from millrace_protocol.codec import decode
from millrace_protocol.errors import WireError
from millrace_protocol.framing import FRAME_BYTES_MAX_BEFORE_HELLO
from millrace_protocol.messages.hello import HelloRequest, HelloResponse
from millrace_protocol.schema import Message
from millrace_wire.errors import (
    ConnectFailed,
    ConnectionClosed,
    ConnectionFault,
    ConnectionLost,
    FrameTooLong,
    ProtocolViolation,
    RequestTimedOut,
    copy_of,
)
from millrace_wire.foreign_protocols import resemblance
from millrace_wire.frame_buffers import KEPT_BYTES_MAX, FrameBuffers
from millrace_wire.frame_reader import FrameLengthError, FrameReader, Scratch
from millrace_wire.request_pipeline import RequestPipeline
from millrace_wire.socket_options import (
    KEEPALIVE_S,
    WAKE_BYTES,
    set_keepalive,
    set_wake_bytes,
    write_frame,
)
from millrace_wire.tls_failure import tls_failure

M = TypeVar("M", bound=Message)
Address = tuple[str, int]
Reply = asyncio.Future[memoryview | None]
"""Gets the body of the response, or None when a request without a response is written."""
Dial = Callable[
    [Callable[[], "Connection"], str, int],
    Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]],
]
"""How a connection is made: `loop.create_connection`, or a broker's `Net.connect`."""

SCRATCH_BYTES: Final = 64 << 10
"""Whole frames up to this size are received together and copied one by one; larger ones are
received in place."""
UNSENT_BYTES_MAX: Final = 1 << 20
"""A transport that holds more than this gets no further request until it holds a quarter of it.
One frame of a producer has about this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """How connections of one owner are made. Sizes are in bytes, times in milliseconds.

    `software` and its version introduce this side in Hello. `client_id` is in the header of every
    request. A peer may send frames of a `length` up to `receive_bytes_max`; memory for frames of
    at most `kept_bytes_max` is used again.
    """

    software: str
    software_version: str
    client_id: str
    connect_timeout_ms: int
    receive_bytes_max: int
    kept_bytes_max: int = KEPT_BYTES_MAX


async def connect(
    dial: Dial,
    address: Address,
    config: ConnectionConfig,
    *,
    scratch: Scratch | None = None,
    then: Callable[[Connection], Awaitable[None]] | None = None,
) -> Connection:
    """Connects and exchanges Hello, and awaits `then`, all within `connect_timeout_ms`.

    `then` is what comes before all other requests, such as an authentication. Raises
    `ConnectFailed`, what `then` raises, and `RequestRefused` where the broker takes no further
    connection.
    Connections of one event loop may share a `scratch`, of `SCRATCH_BYTES`.
    """
    connection = Connection(address, config, scratch or Scratch(SCRATCH_BYTES))
    timeout_ms = config.connect_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await dial(lambda: connection, *address)
            await connection._exchange_hello(config)
            if then is not None:
                await then(connection)
    except (TimeoutError, RequestTimedOut):
        connection.close()
        raise ConnectFailed(f"no response from {connection} within {timeout_ms} ms") from None
    except OSError as error:
        raise ConnectFailed(f"no broker at {connection}: {_reason(error)}") from error
    except (ConnectionLost, ProtocolViolation) as error:
        raise ConnectFailed(f"no millrace broker at {connection}: {error}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return tls_failure(error)
    return error.strerror or str(error) or "it closed the connection"


class Connection(asyncio.BufferedProtocol):
    """A live connection; made by `connect`. `node_id` and `cluster_id` are the peer's."""

    def __init__(self, address: Address, config: ConnectionConfig, scratch: Scratch) -> None:
        self.address = address
        self.node_id = -1
        self.cluster_id = ""
        self._loop = asyncio.get_running_loop()
        self._pipeline: RequestPipeline[Reply] = RequestPipeline(
            str(self), client_id=config.client_id
        )
        self._reader = FrameReader(scratch, frame_bytes_max=FRAME_BYTES_MAX_BEFORE_HELLO)
        self._buffers = FrameBuffers(config.kept_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._wake_bytes = 1
        self._has_tls = False

    @property
    def fault(self) -> ConnectionFault | None:
        """Why the connection has ended, or None while requests may be sent."""
        return self._pipeline.fault

    @property
    def pending_count(self) -> int:
        """Requests that wait to be sent or for their response."""
        return self._pipeline.pending_count

    def is_to(self, address: Address) -> bool:
        """Whether this is a connection to `address`, as it was dialed or as the socket has it."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return address in (self.address, None if peer is None else tuple(peer[:2]))

    async def call(self, request: Message, response: type[M], *, timeout_ms: int) -> M:
        """Sends a request, in the order of calls, and returns its response.

        Raises a `ConnectionFault`, among them `RequestTimedOut`, after which the connection is
        closed; `RequestRefused`; `NotSentInTime`; and what `RequestPipeline.submit` raises.
        A request whose caller is cancelled is not sent any more, or its response is dropped.
        """
        reply, version = self._submit(request, timeout_ms, is_posted=False)
        try:
            return decode(response, cast("memoryview", await reply), version)
        except asyncio.CancelledError:
            self._pipeline.withdraw(reply)
            raise
        except WireError as error:
            raise self._end_at(response, error) from error
        finally:
            # The future holds the exception, and its traceback holds this frame.
            del reply

    async def post(self, request: Message, *, timeout_ms: int) -> None:
        """Sends a request that has no response; returns when its bytes are written.

        Raises as `call` does, but for what only a response can tell.
        """
        reply, _ = self._submit(request, timeout_ms, is_posted=True)
        try:
            await reply
        except asyncio.CancelledError:
            self._pipeline.withdraw(reply)
            raise
        finally:
            del reply

    def close(self) -> None:
        """Closes at once. Pending requests fail with `ConnectionClosed`."""
        self._end(ConnectionClosed(f"the connection to {self} was closed by this side"))

    def __str__(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    # Requests

    def _submit(self, request: Message, timeout_ms: int, *, is_posted: bool) -> tuple[Reply, int]:
        """The future of a request, and the version of its response."""
        reply: Reply = self._loop.create_future()
        deadline_ms = int(self._loop.time() * 1000) + timeout_ms
        version = self._pipeline.submit(
            request, reply, deadline_ms=deadline_ms, is_posted=is_posted
        )
        self._send()
        if self._timer is None or deadline_ms < self._timer_ms:
            self._set_timer()
        return reply, version

    def _send(self) -> None:
        """Writes the requests that may be sent."""
        pipeline = self._pipeline
        while (request := pipeline.next_frame()) is not None:
            assert self._transport is not None
            write_frame(self._transport, request.pieces, request.size)
            if request.is_posted and not request.token.done():
                request.token.set_result(None)

    async def _exchange_hello(self, config: ConnectionConfig) -> None:
        request = HelloRequest(config.software, config.software_version)
        hello = await self.call(request, HelloResponse, timeout_ms=config.connect_timeout_ms)
        try:
            self._pipeline.on_hello(hello)
        except ProtocolViolation as violation:
            self._end(violation)
            raise
        self._reader.frame_bytes_max = config.receive_bytes_max
        self.node_id = hello.node_id
        self.cluster_id = hello.cluster_id

    # Time

    def _set_timer(self) -> None:
        """Has `_on_timer` called at the pipeline's deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._pipeline.deadline_ms()
        if deadline_ms is not None:
            self._timer_ms = deadline_ms
            self._timer = self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            # A whole millisecond divided and multiplied by 1,000 may end below itself.
            now_ms = max(self._timer_ms, int(self._loop.time() * 1000))
            late = self._pipeline.on_deadline(now_ms)
        except RequestTimedOut as fault:
            self._end(fault)
            return
        for reply, error in late:
            if not reply.done():
                reply.set_exception(error)
        self._set_timer()

    # The end

    def _end(self, fault: ConnectionFault) -> None:
        """Closes the connection; every pending request fails with the fault."""
        if self._pipeline.fault is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._reader.discard()
        if self._transport is not None:
            self._transport.abort()
        for reply in self._pipeline.fail(fault):
            if not reply.done():
                # One exception for each: it collects the traceback of its caller.
                reply.set_exception(copy_of(fault))

    def _wrong_length(self, error: FrameLengthError) -> ProtocolViolation:
        bytes_max = self._reader.frame_bytes_max
        if self.node_id >= 0 and error.length > bytes_max:
            return FrameTooLong(
                f"{self} sent a frame of {error.length} bytes, and this side takes {bytes_max}"
            )
        found = resemblance(error.length.to_bytes(4, "big"))
        return ProtocolViolation(f"{self} does not speak the protocol: {found or error}")

    def _end_at(self, response: type[Message], error: WireError) -> ProtocolViolation:
        """Closes the connection at a response that cannot be decoded."""
        violation = ProtocolViolation(f"{self}: a broken {response.__name__}: {error}")
        self._end(violation)
        return violation

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(UNSENT_BYTES_MAX)
        self._has_tls = transport.get_extra_info("sslcontext") is not None
        sock = transport.get_extra_info("socket")
        if sock is not None:
            set_keepalive(sock, idle_s=KEEPALIVE_S)
        if self.fault is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(
            ConnectionLost(
                f"the connection to {self} was lost: {exc or 'the broker closed it'}; "
                "requests without a response may have taken effect"
            )
        )
        self._transport = None

    def pause_writing(self) -> None:
        self._pipeline.on_writing_paused()

    def resume_writing(self) -> None:
        self._pipeline.on_writing_resumed()
        self._send()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.fault is not None:
            return
        reader = self._reader
        reader.received(nbytes)
        try:
            while (frame := reader.next_frame()) is not None:
                self._on_frame(frame if reader.owned else memoryview(bytes(frame)))
        except FrameLengthError as error:
            self._end(self._wrong_length(error))
        except ProtocolViolation as violation:
            self._end(violation)
        else:
            if reader.frame_size or self._wake_bytes > 1:
                self._receive_in_place()
        reader.release_scratch()
        self._send()

    def _on_frame(self, frame: memoryview) -> None:
        reply, response = self._pipeline.on_frame(frame)
        if reply.done():
            return
        if isinstance(response, memoryview):
            reply.set_result(response)
        else:
            reply.set_exception(response)

    def _receive_in_place(self) -> None:
        """Gives an unfinished large frame its memory, and sets how much of it to wait for.

        Never more than the frame lacks, so that no further bytes have to follow it. Not with TLS,
        of which some of the missing bytes may have arrived already.
        """
        reader = self._reader
        if reader.wanted_bytes:
            reader.allocate(self._buffers.take(reader.frame_size, wanted=reader.wanted_bytes))
        wake_bytes = 1 if self._has_tls else min(WAKE_BYTES, max(1, reader.missing_bytes))
        if wake_bytes != self._wake_bytes and self._transport is not None:
            self._wake_bytes = wake_bytes
            set_wake_bytes(self._transport, wake_bytes)
