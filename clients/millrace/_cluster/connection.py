"""One connection to one broker: pipelined requests, answers by correlation id.

Owns the socket, the frames, the deadlines and the limits both sides named in Hello. Knows the
meaning of no message but Hello and Refusal. Source: wire_spec.md W-2, W-4.1.

Lives from `Connection.open` until `close` or the first fault; then every request that waits, and
every later one, fails with the cause. A request whose caller was cancelled is forgotten when its
answer comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar, cast

from millrace._cluster.frame_buffers import KEPT_BYTES_MAX, FrameBuffers
from millrace._cluster.frame_writing import write_frame
from millrace.errors import (
    Closed,
    ConnectionFailed,
    ConnectionLost,
    MessageTooLarge,
    MillraceError,
    ProtocolViolation,
    RequestTimedOut,
    UnsupportedVersion,
    broker_error,
)
from millrace_protocol.api import APIS, Api, ApiKey, negotiate
from millrace_protocol.codec import decode, encode
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.framing import (
    FRAME_BYTES_MAX_BEFORE_HELLO,
    HEADER,
    HEADER_SIZE,
    LENGTH_SIZE,
    MAGIC,
    read_response_header,
)
from millrace_protocol.hot import produce_request_parts
from millrace_protocol.messages.hello import HelloRequest, HelloResponse
from millrace_protocol.messages.produce import ProduceRequest
from millrace_protocol.messages.refusal import Refusal
from millrace_protocol.schema import Message

M = TypeVar("M", bound=Message)
Address = tuple[str, int]

SCRATCH_BYTES = 64 * 1024
"""Frames up to this size are received into one buffer that is used again."""
WAKE_BYTES = 1024 * 1024
"""Of a larger frame, so much is waited for before the loop wakes up, or what is left of it."""
_API_OF: dict[type[Message], Api] = {api.request: api for api in APIS.values()}
_HELLO_LIMITS = (FRAME_BYTES_MAX_BEFORE_HELLO, 1)


@functools.cache
def software_version() -> str:
    """The installed version of this library."""
    try:
        return version("millrace")
    except PackageNotFoundError:
        return "unknown"


@dataclass(slots=True)
class _Pending:
    """A request on its way; `deadline` is in the loop's seconds."""

    future: asyncio.Future[memoryview]
    deadline: float
    api: int
    version: int


class Connection(asyncio.BufferedProtocol):
    """A live connection; make one with `open`.

    `node_id`, `cluster_id`, `frame_bytes_max` and `inflight_requests_max` are the broker's, from
    Hello. `receive_bytes_max` bounds the length of a frame the broker may send, and the room for
    frames of at most `kept_bytes_max` is used again.
    """

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        receive_bytes_max: int,
        kept_bytes_max: int = KEPT_BYTES_MAX,
    ) -> None:
        self.address = address
        self.node_id = -1
        self.cluster_id = ""
        self.frame_bytes_max, self.inflight_requests_max = _HELLO_LIMITS
        self.fault: MillraceError | None = None
        self._client_id = client_id.encode()
        self._receive_bytes_max = receive_bytes_max
        self._receive_limit = FRAME_BYTES_MAX_BEFORE_HELLO
        self._versions: dict[ApiKey, int] = {ApiKey.HELLO: 0}
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._kept = 0
        self._buffers = FrameBuffers(kept_bytes_max)
        self._large: memoryview | None = None
        self._large_have = 0
        self._wake_bytes = 1

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str,
        connect_timeout_ms: int,
        receive_bytes_max: int,
        kept_bytes_max: int = KEPT_BYTES_MAX,
    ) -> Connection:
        """Connects and says Hello. Raises `ConnectionFailed` with the reason."""
        loop = asyncio.get_running_loop()
        name = "{}:{}".format(*address)
        connection = cls(
            address,
            client_id=client_id,
            receive_bytes_max=receive_bytes_max,
            kept_bytes_max=kept_bytes_max,
        )
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await loop.create_connection(lambda: connection, *address)
                await connection._hello(connect_timeout_ms)
        except TimeoutError:
            connection.close()
            raise ConnectionFailed(
                f"no answer from {name} within {connect_timeout_ms} ms"
            ) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConnectionFailed(f"no broker at {name}: {reason}") from error
        except (ConnectionLost, ProtocolViolation) as error:
            raise ConnectionFailed(f"no millrace broker at {name}: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self.fault is None

    @property
    def pending_count(self) -> int:
        """Requests that wait for their answer."""
        return len(self._pending)

    async def call(self, request: Message, answer: type[M], *, timeout_ms: int) -> M:
        """Sends a request, in the order of calls, and returns its answer.

        Raises `ConnectionLost`, `RequestTimedOut` (the connection is given up then),
        `ProtocolViolation`, and `BrokerError` where the broker refuses the whole request.
        """
        pending = self._send(request, timeout_ms)
        body = await pending.future
        try:
            return decode(answer, body, pending.version)
        except WireError as error:
            violation = ProtocolViolation(f"{self}: a broken {answer.__name__}: {error}")
            self._die(violation)
            raise violation from error

    def post(self, request: Message) -> None:
        """Sends a request that has no answer."""
        self._write(request)

    def close(self) -> None:
        """Closes at once. Requests that wait fail with `Closed`."""
        self._die(Closed(f"the connection to {self} was closed by this client"))

    def __str__(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    # Requests

    def _send(self, request: Message, timeout_ms: int) -> _Pending:
        correlation_id, api, api_version = self._write(request)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        pending = _Pending(loop.create_future(), deadline, api, api_version)
        self._pending[correlation_id] = pending
        # One timer for all: it stands at the earliest deadline known when it was set, and looks
        # again when it fires. Requests finish long before it, so it is hardly ever moved.
        if self._timer is None or deadline < self._timer.when():
            self._arm(deadline)
        return pending

    def _write(self, request: Message) -> tuple[int, int, int]:
        if self.fault is not None:
            raise self._fault_now()
        api = _API_OF[type(request)]
        api_version = self._versions.get(api.key)
        if api_version is None:
            raise UnsupportedVersion(
                f"{self} does not speak a version of {api.key.name} that this client speaks; "
                "use client and broker versions closer to each other",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        if isinstance(request, ProduceRequest) and api_version == 0:
            parts = produce_request_parts(request)
        else:
            parts = [encode(request, api_version)]
        length = HEADER_SIZE - LENGTH_SIZE + len(self._client_id) + sum(map(len, parts))
        if length > self.frame_bytes_max:
            raise MessageTooLarge(
                f"a request of {length} bytes, and {self} accepts {self.frame_bytes_max}: "
                "lower max_request_bytes, or name fewer topics at once",
                code=ErrorCode.FRAME_TOO_LARGE,
            )
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0xFFFFFFFF
        header = HEADER.pack(
            length, MAGIC, api.key, api_version, correlation_id, len(self._client_id)
        )
        pieces = [header + self._client_id, *parts]
        write_frame(self._transport, pieces, LENGTH_SIZE + length)
        return correlation_id, api.key, api_version

    async def _hello(self, timeout_ms: int) -> None:
        hello = await self.call(
            HelloRequest("millrace-python", software_version()),
            HelloResponse,
            timeout_ms=timeout_ms,
        )
        self.node_id = hello.node_id
        self.cluster_id = hello.cluster_id
        self.frame_bytes_max = hello.frame_bytes_max
        self.inflight_requests_max = hello.inflight_requests_max
        self._receive_limit = self._receive_bytes_max
        for spoken in hello.apis:
            try:
                key = ApiKey(spoken.api)
            except ValueError:
                continue
            chosen = negotiate(key, spoken.min_version, spoken.max_version)
            if chosen is not None:
                self._versions[key] = chosen

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._pending:
            return
        earliest = min(self._pending.values(), key=lambda pending: pending.deadline)
        if earliest.deadline > asyncio.get_running_loop().time():
            self._arm(earliest.deadline)
            return
        self._die(
            RequestTimedOut(
                f"{self} did not answer {ApiKey(earliest.api).name} in time; "
                "the connection was given up, and the request may have taken effect"
            )
        )

    # Death

    def _die(self, fault: MillraceError) -> None:
        if self.fault is not None:
            return
        self.fault = fault
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport = getattr(self, "_transport", None)
        if transport is not None:
            transport.abort()
        pending, self._pending = self._pending, {}
        for request in pending.values():
            if not request.future.done():
                request.future.set_exception(self._fault_now())
        self._large = None

    def _fault_now(self) -> MillraceError:
        """The fault as a new exception: one that is raised twice collects both tracebacks."""
        fault = cast(MillraceError, self.fault)
        copy = type(fault)(*fault.args)
        copy.__cause__ = fault.__cause__
        return copy

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.fault is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        lost = ConnectionLost(
            f"the connection to {self} was lost: {exc or 'the broker closed it'}; "
            "requests without an answer may have taken effect"
        )
        lost.__cause__ = exc
        self._die(lost)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._large_have :]
        return self._scratch[self._kept :]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._large is None:
                self._scan(self._kept + nbytes)
                return
            self._large_have += nbytes
            self._wake_after(len(self._large) - self._large_have)
            if self._large_have == len(self._large):
                frame, self._large = self._large, None
                self._on_frame(frame)
        except WireError as error:
            violation = ProtocolViolation(f"{self} does not speak the protocol: {error}")
            violation.__cause__ = error
            self._die(violation)

    def _scan(self, end: int) -> None:
        """Takes the whole frames out of `scratch[:end]`; keeps or moves what is left."""
        scratch = self._scratch
        start = 0
        while end - start >= LENGTH_SIZE:
            length = int.from_bytes(scratch[start : start + LENGTH_SIZE], "big")
            if not HEADER_SIZE - LENGTH_SIZE <= length <= self._receive_limit:
                raise WireError(
                    f"a frame length of {length}, and this client takes "
                    f"{HEADER_SIZE - LENGTH_SIZE} to {self._receive_limit}",
                    position=0,
                )
            size = LENGTH_SIZE + length
            if size > end - start:
                if size > SCRATCH_BYTES:
                    self._large = self._buffers.take(size)
                    self._large_have = end - start
                    self._large[: end - start] = scratch[start:end]
                    self._wake_after(size - self._large_have)
                    start = end
                break
            self._on_frame(memoryview(bytes(scratch[start : start + size])))
            start += size
        self._kept = end - start
        if start and self._kept:
            scratch[: self._kept] = bytes(scratch[start:end])

    # Who wakes up for each segment receives little at a time, and has the kernel do the sender's
    # work in its place: of a local broker, receiving takes a third of the CPU time this way. Never
    # more is waited for than the frame still lacks, so that nothing has to follow it. That holds
    # for bytes that come as they are: of TLS, some of what lacks may have been received already.
    def _wake_after(self, left: int) -> None:
        """Has the loop wake up when `WAKE_BYTES` of the `left` are there; of 0, when any are."""
        wake_bytes = min(WAKE_BYTES, max(1, left))
        if wake_bytes == self._wake_bytes:
            return
        self._wake_bytes = wake_bytes
        sock = self._transport.get_extra_info("socket")
        # Not every system knows the option, nor does a simulated one; waking up more often is
        # all that it costs.
        if sock is not None and hasattr(socket, "SO_RCVLOWAT"):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wake_bytes)

    def _on_frame(self, frame: memoryview) -> None:
        header = read_response_header(frame)
        # Taken out last: a fault found before that fails it together with the others.
        pending = self._pending.get(header.correlation_id)
        if pending is None:
            if self.fault is not None:
                return
            raise WireError(
                f"an answer to request {header.correlation_id}, which nobody made", position=10
            )
        if header.api != pending.api:
            raise WireError(f"api {header.api} in an answer to {pending.api}", position=6)
        body = frame[HEADER_SIZE:]
        refusal = decode(Refusal, body, 0) if header.error_code else None
        del self._pending[header.correlation_id]
        if pending.future.done():
            return
        if refusal is not None:
            pending.future.set_exception(broker_error(header.error_code, refusal.message))
        elif header.version != pending.version:
            pending.future.set_exception(
                ProtocolViolation(
                    f"{self} answers version {header.version} to a request of {pending.version}"
                )
            )
        else:
            pending.future.set_result(body)
