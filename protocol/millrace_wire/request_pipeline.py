"""The request side of one connection: the order of requests, and the match of responses.

Owns correlation ids, the versions and limits that the peer names in Hello, the requests that wait
to be sent, the requests in flight, and their deadlines. Knows only the messages Hello and
ErrorResponse. Does no I/O and reads no clock. Source: wire_spec.md W-2, W-4.1, W-6.

    submit --> queued --next_frame--> in flight --on_frame--> its response
                 |                        |
                 | on_deadline:           | on_deadline, or any fault:
                 v this request fails     v the connection ends, and every request fails

Responses come in the order of the requests (W-2.6), so the requests in flight are a queue, and a
response to any but the oldest breaks the protocol. The bounds:

    len(in flight) <= inflight_requests_max
    bytes in flight < inflight_bytes_max + frame_bytes_max
    len(queued) <= QUEUED_REQUESTS_MAX
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from millrace_protocol.api import APIS, Api, ApiKey, negotiate
from millrace_protocol.codec import decode, encode_parts
from millrace_protocol.errors import WireError
from millrace_protocol.framing import (
    CLIENT_ID_BYTES_MAX,
    FRAME_BYTES_MAX_BEFORE_HELLO,
    HEADER,
    HEADER_SIZE,
    LENGTH_SIZE,
    MAGIC,
    read_response_header,
)
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.hello import HelloResponse
from millrace_protocol.schema import Message
from millrace_wire.errors import (
    ConnectionFault,
    NotSentInTime,
    ProtocolViolation,
    RequestRefused,
    RequestTimedOut,
    RequestTooLarge,
    TooManyRequests,
    VersionUnsupported,
    copy_of,
)

T = TypeVar("T")
Piece = bytes | bytearray | memoryview

QUEUED_REQUESTS_MAX: Final = 4096
"""A queue that long is not emptied before its deadlines: the peer answers too slowly."""
INFLIGHT_BYTES_MAX: Final = 32 << 20
"""A broker stops reading a connection whose requests hold that much (`buffered_bytes_max`)."""
_API_OF: Final[dict[type[Message], Api]] = {api.request: api for api in APIS.values()}
_CORRELATION_IDS: Final = 1 << 32


@dataclass(slots=True)
class Request(Generic[T]):
    """A request, framed. `pieces` are written in this order and are views of the message.

    `token` is the caller's. A request that `is_posted` has no response; it is done when its
    pieces are written.
    """

    token: T
    pieces: list[Piece]
    size: int
    api: ApiKey
    version: int
    correlation_id: int
    deadline_ms: int
    is_posted: bool


class RequestPipeline(Generic[T]):
    """The requests of one connection to `peer`, a name for messages.

    Lives until `fail`: then `fault` is set, and `submit` raises it. Before `on_hello` the limits
    are those of W-6.1, and Hello is the only api.
    """

    def __init__(
        self, peer: str, *, client_id: str, inflight_bytes_max: int = INFLIGHT_BYTES_MAX
    ) -> None:
        self.peer = peer
        self.fault: ConnectionFault | None = None
        self.frame_bytes_max = FRAME_BYTES_MAX_BEFORE_HELLO
        self.inflight_requests_max = 1
        self.inflight_bytes = 0
        self._client_id = client_id.encode()
        if len(self._client_id) > CLIENT_ID_BYTES_MAX:
            raise ValueError(
                f"a client id of {len(self._client_id)} bytes; the limit is {CLIENT_ID_BYTES_MAX}"
            )
        self._inflight_bytes_max = inflight_bytes_max
        self._versions: dict[ApiKey, int] = {ApiKey.HELLO: 0}
        self._queued: deque[Request[T]] = deque()
        self._in_flight: deque[Request[T]] = deque()
        self._correlation_id = 0
        self._is_writing_paused = False
        self._deadline_ms: int | None = None

    @property
    def pending_count(self) -> int:
        """Requests that wait to be sent or for their response."""
        return len(self._queued) + len(self._in_flight)

    def deadline_ms(self) -> int | None:
        """When `on_deadline` is due. No deadline of a request is earlier.

        The deadline of a request that is done counts until then: requests are done long before
        their deadlines, so that a timer for this moment is hardly ever moved.
        """
        return self._deadline_ms

    # Requests

    def submit(
        self, message: Message, token: T, *, deadline_ms: int, is_posted: bool = False
    ) -> int:
        """Puts a request behind those that wait to be sent; returns the version of its response.

        Raises the fault of a connection that has ended, `VersionUnsupported`, `RequestTooLarge`,
        `TooManyRequests`, and `ValueError` for a value that its field cannot carry. Then nothing
        has changed.
        """
        if self.fault is not None:
            raise copy_of(self.fault)
        if len(self._queued) >= QUEUED_REQUESTS_MAX:
            raise TooManyRequests(
                f"{QUEUED_REQUESTS_MAX} requests wait to be sent to {self.peer}; "
                "send fewer at once, or use another connection"
            )
        api = _API_OF[type(message)].key
        version = self._versions.get(api)
        if version is None:
            raise VersionUnsupported(
                f"{self.peer} does not speak a version of {api.name} that this side speaks; "
                "use versions of both that are closer to each other"
            )
        parts = encode_parts(message, version)
        client_id = self._client_id
        length = HEADER_SIZE - LENGTH_SIZE + len(client_id) + sum(map(len, parts))
        if length > self.frame_bytes_max:
            raise RequestTooLarge(
                f"a request of {length} bytes, and {self.peer} accepts {self.frame_bytes_max}"
            )
        correlation_id = self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        header = HEADER.pack(length, MAGIC, api, version, correlation_id, len(client_id))
        pieces = [header + client_id, *parts]
        self._queued.append(
            Request(
                token,
                pieces,
                LENGTH_SIZE + length,
                api,
                version,
                correlation_id,
                deadline_ms,
                is_posted,
            )
        )
        if self._deadline_ms is None or deadline_ms < self._deadline_ms:
            self._deadline_ms = deadline_ms
        return version

    def next_frame(self) -> Request[T] | None:
        """The next request to write, or None while there is none or no room in flight."""
        if (
            not self._queued
            or self._is_writing_paused
            or len(self._in_flight) >= self.inflight_requests_max
            or self.inflight_bytes >= self._inflight_bytes_max
        ):
            return None
        request = self._queued.popleft()
        if not request.is_posted:
            self._in_flight.append(request)
            self.inflight_bytes += request.size
        return request

    def withdraw(self, token: T) -> None:
        """Forgets a request that is not sent yet. One in flight stays there."""
        for request in self._queued:
            if request.token is token:
                self._queued.remove(request)
                return

    # Events

    def on_hello(self, hello: HelloResponse) -> None:
        """Takes versions and limits from the peer's Hello. Raises `ProtocolViolation`."""
        if hello.inflight_requests_max < 1 or hello.frame_bytes_max < HEADER_SIZE:
            raise ProtocolViolation(
                f"{self.peer} names limits that allow no request: inflight_requests_max "
                f"{hello.inflight_requests_max}, frame_bytes_max {hello.frame_bytes_max}"
            )
        self.frame_bytes_max = hello.frame_bytes_max
        self.inflight_requests_max = hello.inflight_requests_max
        for spoken in hello.apis:
            try:
                key = ApiKey(spoken.api)
            except ValueError:
                continue
            version = negotiate(key, spoken.min_version, spoken.max_version)
            if version is not None:
                self._versions[key] = version

    def on_frame(self, frame: memoryview) -> tuple[T, memoryview | RequestRefused]:
        """Takes a frame from the peer as the response to the oldest request in flight.

        Returns the token of the request, and the body as a view of the frame or a refusal.
        Raises `ProtocolViolation`; then the request stays in flight, to fail with the others.
        """
        try:
            header = read_response_header(frame)
            if not self._in_flight:
                raise WireError(
                    f"a response to request {header.correlation_id}, and none is in flight",
                    position=10,
                )
            request = self._in_flight[0]
            if header.correlation_id != request.correlation_id:
                raise WireError(
                    f"a response to request {header.correlation_id}, and the oldest in flight "
                    f"is {request.correlation_id}",
                    position=10,
                )
            if header.api != request.api:
                raise WireError(f"api {header.api} in a response to {request.api}", position=6)
            body = frame[HEADER_SIZE:]
            refusal = None
            if header.error_code:
                refusal = _refused(header.error_code, decode(ErrorResponse, body, 0))
            elif header.version != request.version:
                raise WireError(
                    f"version {header.version} in a response to {request.version}", position=8
                )
        except WireError as error:
            raise ProtocolViolation(f"{self.peer} does not speak the protocol: {error}") from error
        self._in_flight.popleft()
        self.inflight_bytes -= request.size
        return request.token, body if refusal is None else refusal

    def on_writing_paused(self) -> None:
        """As many bytes wait to be written as may wait: no request is sent until they are fewer."""
        self._is_writing_paused = True

    def on_writing_resumed(self) -> None:
        """Bytes may be written again."""
        self._is_writing_paused = False

    def on_deadline(self, now_ms: int) -> list[tuple[T, NotSentInTime]]:
        """Fails what is overdue: returns the requests that were never sent, with their errors.

        Raises `RequestTimedOut` where a request in flight is overdue: its response stands before
        all others, so the connection is of no more use.
        """
        overdue = min(self._in_flight, key=_deadline_ms, default=None)
        if overdue is not None and overdue.deadline_ms <= now_ms:
            raise RequestTimedOut(
                f"{self.peer} did not respond to {overdue.api.name} in time; "
                "the connection was closed, and the request may have taken effect"
            )
        late = [request for request in self._queued if request.deadline_ms <= now_ms]
        if late:
            self._queued = deque(r for r in self._queued if r.deadline_ms > now_ms)
        deadlines = [request.deadline_ms for request in self._queued]
        if overdue is not None:
            deadlines.append(overdue.deadline_ms)
        self._deadline_ms = min(deadlines, default=None)
        return [(request.token, self._not_sent(request)) for request in late]

    def fail(self, fault: ConnectionFault) -> list[T]:
        """Ends the pipeline. Returns the token of every request, in the order of `submit`."""
        if self.fault is None:
            self.fault = copy_of(fault)
        tokens = [request.token for request in (*self._in_flight, *self._queued)]
        self._in_flight.clear()
        self._queued.clear()
        self.inflight_bytes = 0
        self._deadline_ms = None
        return tokens

    def _not_sent(self, request: Request[T]) -> NotSentInTime:
        return NotSentInTime(
            f"{request.api.name} was not sent to {self.peer} in time: "
            f"{len(self._in_flight)} requests before it have no response yet"
        )


def _deadline_ms(request: Request[T]) -> int:
    return request.deadline_ms


def _refused(error_code: int, refusal: ErrorResponse) -> RequestRefused:
    return RequestRefused(
        refusal.message,
        error_code=error_code,
        min_version=refusal.min_version,
        max_version=refusal.max_version,
    )
