"""Frames in, frames out: which handler answers, and what is sent when none can.

A frame that is not of this protocol ends the connection: nothing after it can be trusted.
Every other request gets a response, and the connection lives on: an unknown api or version with
the supported range, a body that does not decode with the position of the byte that is wrong.

A short request is handled within the call. A long one is decoded, handled and encoded in chunks,
between which the fair scheduler lets other requests go.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from millrace_protocol.api import APIS, ApiKey, Listener
from millrace_protocol.codec import Decoder, Encoder, decode, encode, entry_count
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.framing import (
    HEADER_SIZE,
    LENGTH_SIZE,
    TEXT_OPENINGS,
    RequestHeader,
    error_frame,
    read_request_header,
    response_frame,
    response_header,
)
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.produce import ProduceRequest
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.config import BrokerConfig
from millrace_server.dialects.login import context_of
from millrace_server.dialects.native.handlers import HANDLERS, Handler
from millrace_server.dialects.native.request_statistics import RESULTS, api_table, count_errors
from millrace_server.dialects.response_body import Body, BodyParts, CloseConnection
from millrace_server.environment.seams import ReadBuffer, Response
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.net.dialect import Handled, Peer
from millrace_server.services.produce import CHUNK_BATCHES
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.statistics.requests import UNTIMED, ApiStatistics
from millrace_wire.frame_reader import FrameLengthError, FrameReader, FramingError

BEFORE_LOGIN = (ApiKey.HELLO, ApiKey.AUTHENTICATE)
"""What a client may ask for on a listener with SASL before it has authenticated."""
LONG_BODY_BYTES = 4 << 10
"""A longer body is decoded in chunks: it names more than a hundred things."""
LONG_PRODUCE_BYTES = 1 << 10
"""A shorter Produce names no more batches than are appended in one chunk."""
CHUNK_ENTRIES = 100
"""Array elements decoded or encoded in one chunk, some 200 us."""

Routes = dict[tuple[int, int], tuple[type[Message], Handler]]
"""The message and the handler of each api in each version."""

log = get_logger("millrace.native")


class NativeDialect:
    """The dialect of length-prefixed frames (wire_spec.md W-2)."""

    def __init__(
        self,
        services: Services,
        config: BrokerConfig,
        handlers: Mapping[int, Handler] = HANDLERS,
        listener: Listener = Listener.CLIENT,
    ) -> None:
        self.services = services
        self.authorizer = services.authorizer if listener is Listener.CLIENT else None
        self.has_quotas = listener is Listener.CLIENT
        self.routes: Routes = {
            (key, version): (APIS[ApiKey(key)].request, handle)
            for key, handle in handlers.items()
            for version in range(APIS[ApiKey(key)].min_version, APIS[ApiKey(key)].max_version + 1)
        }
        self.config = config
        self.refused_frames = LogRateLimiter(services.env.clock)
        self.apis = api_table(services.statistics.registry, listener)

    def recognizes(self, first_bytes: ReadBuffer) -> bool | None:
        """Every binary frame: a wrong one is refused in this dialect."""
        return first_bytes[0] not in TEXT_OPENINGS

    def open(self, connection: Peer) -> NativeSession:
        return NativeSession(self, connection)


class NativeSession:
    """The requests and responses of one connection."""

    __slots__ = ("_apis", "_connection", "_context", "_dialect", "_now_ns", "_routes", "_services")

    def __init__(self, dialect: NativeDialect, connection: Peer) -> None:
        self._dialect = dialect
        self._services = dialect.services
        self._connection = connection
        self._context = RequestContext(
            **context_of(connection, dialect.authorizer, has_quotas=dialect.has_quotas)
        )
        self._apis = dialect.apis
        self._routes = dialect.routes
        self._now_ns = dialect.services.env.clock.monotonic_ns

    def next_request(self, reader: FrameReader) -> memoryview | None:
        frame = reader.next_frame()
        if frame is not None and len(frame) < HEADER_SIZE:
            raise FrameLengthError(
                len(frame) - LENGTH_SIZE,
                frame_bytes_min=HEADER_SIZE - LENGTH_SIZE,
                frame_bytes_max=reader.frame_bytes_max,
            )
        return frame

    def may_overlap(self, reader: FrameReader) -> bool:
        """All requests may (wire_spec.md W-2.6)."""
        return True

    def last_request(self, reader: FrameReader) -> None:
        """A frame that is cut short is no request."""

    def refuse(self, error: FramingError) -> Response:
        """Names the limit. The header was not read, so api and correlation id are 0."""
        assert isinstance(error, FrameLengthError)
        self._apis.unknown.count_error(ErrorCode.FRAME_TOO_LARGE)
        limits = self._dialect.config.limits
        return [
            _anonymous_refusal(
                ErrorCode.FRAME_TOO_LARGE,
                f"A frame length of {error.length} is out of bounds: it is at least "
                f"{HEADER_SIZE - LENGTH_SIZE} and at most {limits.frame_bytes_max}, before Hello "
                f"{limits.frame_bytes_max_before_hello}",
            )
        ]

    def refuse_connection(self, reason: str) -> Response:
        return [_anonymous_refusal(ErrorCode.BROKER_STOPPING, reason)]

    def handle(self, request: ReadBuffer, *, owned: bool) -> Handled:
        """Handles one whole frame."""
        throttle = self._services.throttle
        if throttle.cache.image.quotas.entities:
            return throttle.timed(self._context, lambda: self._handle(request, owned))
        return self._handle(request, owned)

    def _handle(self, request: ReadBuffer, owned: bool) -> Handled:
        frame = request
        assert isinstance(frame, memoryview)
        try:
            header = read_request_header(frame)
        except WireError as error:
            self._abort(error)
            return None
        self._context.client_id = header.client_id
        counted = self._apis[header.api]
        requests = counted.requests
        counted.requests = requests + 1
        began_ns = 0 if requests & UNTIMED else self._now_ns()
        if len(frame) > LONG_PRODUCE_BYTES and _is_long(header, frame):
            # It is read after this call. Not bytes: an append writes offsets into a batch.
            kept = frame if owned else memoryview(bytearray(frame))
            return self._respond_in_chunks(header, kept, counted, began_ns)
        try:
            if self._context.sasl is not None and header.api not in BEFORE_LOGIN:
                self._services.authentication.check_may_request(self._context)
            request_type, handle = _route(self._routes, header)
            try:
                message = decode(request_type, frame[header.body_position :], header.version)
            except WireError as error:
                raise _broken_body(header, error) from None
            handled = handle(self._services, self._context, message)
            if handled is None:
                return None
            if not isinstance(handled, (Message, BodyParts)):
                return self._respond(header, handled, counted, began_ns)
            self._note_greeting(header)
            if RESULTS[header.api]:
                count_errors(counted, header.api, handled)
            response = _encoded(header, handled)
            if began_ns:
                counted.duration.observe(self._now_ns() - began_ns)
            return response
        except Exception as error:
            return self._failed(header, error)

    async def _respond(
        self,
        header: RequestHeader,
        handled: Coroutine[Any, Any, Body | None],
        counted: ApiStatistics,
        began_ns: int,
    ) -> Response:
        """The response that a handler's coroutine leads to."""
        try:
            body = await handled
            if header.api == ApiKey.AUTHENTICATE:
                self._note_greeting(header)
            response: Response = []
            if body is not None:
                count_errors(counted, header.api, body)
                if isinstance(body, Message):
                    body = await self._encoded_in_chunks(header, body)
                response = _encoded(header, body)
        except Exception as error:
            response = self._failed(header, error)
        if began_ns:
            counted.duration.observe(self._now_ns() - began_ns)
        return response

    async def _respond_in_chunks(
        self, header: RequestHeader, frame: memoryview, counted: ApiStatistics, began_ns: int
    ) -> Response:
        """The response to a long request, whose frame is kept."""
        scheduler = self._services.scheduler
        try:
            if self._context.sasl is not None and header.api not in BEFORE_LOGIN:
                self._services.authentication.check_may_request(self._context)
            await scheduler.yield_()
            request_type, handle = _route(self._routes, header)
            decoder = Decoder(request_type, frame[header.body_position :], header.version)
            try:
                while not decoder.step(CHUNK_ENTRIES):
                    await scheduler.yield_()
            except WireError as error:
                raise _broken_body(header, error) from None
            await scheduler.yield_()
            body = handle(self._services, self._context, decoder.result)
            if isinstance(body, Coroutine):
                body = await body
            self._note_greeting(header)
            response: Response = []
            if body is not None:
                count_errors(counted, header.api, body)
                if isinstance(body, Message):
                    await scheduler.yield_()
                    body = await self._encoded_in_chunks(header, body)
                response = _encoded(header, body)
        except Exception as error:
            response = self._failed(header, error)
        if began_ns:
            counted.duration.observe(self._now_ns() - began_ns)
        return response

    async def _encoded_in_chunks(self, header: RequestHeader, body: Message) -> BodyParts:
        encoder = Encoder(body, header.version)
        while not encoder.step(CHUNK_ENTRIES):
            await self._services.scheduler.yield_()
        return BodyParts([*encoder.parts], sum(map(len, encoder.parts)))

    def _note_greeting(self, header: RequestHeader) -> None:
        """Lifts the limit for frames before Hello, with SASL before the client's login."""
        if header.api in BEFORE_LOGIN and self._context.is_authenticated:
            self._connection.lift_frame_limit()

    def _failed(self, header: RequestHeader, error: Exception) -> Response:
        """The response to a request that was refused, or that met a bug of the broker."""
        counted = self._apis[header.api]
        if isinstance(error, CloseConnection):
            for code in error.error_codes:
                counted.count_error(code)
            self._connection.abort(str(error))
            return []
        if isinstance(error, ApiError):
            counted.count_error(error.code)
            if self._context.sasl is not None and self._context.sasl.is_refused:
                self._connection.finish(error.message)
            return [_refusal(header, error)]
        counted.count_error(ErrorCode.UNKNOWN_SERVER_ERROR)
        if (suppressed := self._dialect.refused_frames.take()) is not None:
            log.error(
                "request failed",
                peer=self._connection.peer,
                api=header.api,
                suppressed=suppressed,
                exc_info=error,
            )
        return [_refusal(header, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))]

    def _abort(self, error: WireError) -> None:
        connection = self._connection
        if (suppressed := self._dialect.refused_frames.take()) is not None:
            log.warning(
                "frame refused", peer=connection.peer, reason=str(error), suppressed=suppressed
            )
        connection.abort(f"no frame of this protocol: {error}")


def _route(routes: Routes, header: RequestHeader) -> tuple[type[Message], Handler]:
    """The message and the handler of a request.

    Raises `ApiError` when there is no such api, or not in this version.
    """
    route = routes.get((header.api, header.version))
    if route is not None:
        return route
    if not any(api == header.api for api, _ in routes):
        raise ApiError(
            ErrorCode.UNKNOWN_API,
            f"The broker has no api with key {header.api}; Hello lists the apis",
        )
    api = APIS[ApiKey(header.api)]
    raise ApiError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"The broker has {api.name} in versions {api.min_version} to {api.max_version}, not in "
        f"{header.version}",
    )


def _broken_body(header: RequestHeader, error: WireError) -> ApiError:
    name = APIS[ApiKey(header.api)].name
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"The body of the {name} request is broken: {error.reason}, at byte "
        f"{header.body_position + error.position} of the frame",
    )


def _is_long(header: RequestHeader, frame: memoryview) -> bool:
    """Whether a body is long, and not merely for its records, which are not decoded."""
    if header.api == ApiKey.PRODUCE:
        body = frame[header.body_position :]
        return entry_count(ProduceRequest, body, header.version) > CHUNK_BATCHES
    return len(frame) > LONG_BODY_BYTES


def _encoded(header: RequestHeader, body: Body) -> Response:
    if isinstance(body, BodyParts):
        frame_header = response_header(
            api=header.api,
            version=header.version,
            correlation_id=header.correlation_id,
            body_size=body.size,
        )
        first, *others = body.parts
        if isinstance(first, bytes):
            return [frame_header + first, *others]
        return [frame_header, *body.parts]
    return [
        response_frame(
            api=header.api,
            version=header.version,
            correlation_id=header.correlation_id,
            body=encode(body, header.version),
        )
    ]


def _refusal(header: RequestHeader, error: ApiError) -> bytes:
    min_version = max_version = -1
    if error.code is ErrorCode.UNSUPPORTED_VERSION:
        api = APIS[ApiKey(header.api)]
        min_version, max_version = api.min_version, api.max_version
    return error_frame(
        api=header.api,
        version=header.version,
        correlation_id=header.correlation_id,
        error_code=error.code,
        response=ErrorResponse(error.message, min_version, max_version),
    )


def _anonymous_refusal(code: ErrorCode, message: str) -> bytes:
    return error_frame(
        api=0, version=0, correlation_id=0, error_code=code, response=ErrorResponse(message)
    )
