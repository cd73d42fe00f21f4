"""Frames of Kafka's protocol: which handler answers, and what is done when none can.

As Kafka does, the broker closes a connection that asks for an api or a version it does not have, or
whose request does not decode, and says why in its log. Only ApiVersions in a version that the
broker does not have gets a response: the client asks again in another one. Bytes behind a request
are ignored, as Kafka does: librdkafka sends some behind Metadata.

A short request is handled within the call. A long one is decoded, handled and encoded in chunks,
between which the fair scheduler lets other requests go.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from millrace_protocol.codec import Decoder, Encoder, decode, encode
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.framing import LENGTH_SIZE
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApi, KafkaApiKey
from millrace_protocol.kafka.framing import (
    API_KEY_MAX,
    KafkaRequestHeader,
    kafka_response_prefix,
    read_kafka_header,
)
from millrace_protocol.kafka.produce import ProduceRequest
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.config import BrokerConfig
from millrace_server.dialects.kafka.context import KafkaContext
from millrace_server.dialects.kafka.fetch_sessions import FetchSessions
from millrace_server.dialects.kafka.handlers import HANDLERS
from millrace_server.dialects.kafka.handlers.api_versions import unsupported_version
from millrace_server.dialects.login import context_of
from millrace_server.dialects.response_body import Body, BodyParts, CloseConnection
from millrace_server.environment.seams import ReadBuffer, Response
from millrace_server.limits import FRAME_BYTES_MIN
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.net.dialect import Handled, Peer
from millrace_server.services.produce import CHUNK_BATCHES
from millrace_server.services.services import Services
from millrace_server.statistics.requests import UNTIMED, ApiStatistics, ApiTable
from millrace_wire.frame_reader import FrameReader, FramingError

LONG_BODY_BYTES = 4 << 10
"""A longer body is decoded in chunks: it names more than a hundred things."""
CHUNK_ENTRIES = 100
"""Array elements decoded or encoded in one chunk, some 200 us."""
_KEY_END = LENGTH_SIZE + 2
_PRODUCE_KEY = KafkaApiKey.PRODUCE
_PRODUCE = _PRODUCE_KEY.to_bytes(2, "big")
BEFORE_LOGIN = (
    KafkaApiKey.API_VERSIONS,
    KafkaApiKey.SASL_HANDSHAKE,
    KafkaApiKey.SASL_AUTHENTICATE,
)
"""What a client may ask for on a listener with SASL before it has authenticated."""

log = get_logger("millrace.kafka")


class KafkaDialect:
    """The dialect of Kafka's clients."""

    def __init__(self, services: Services, config: BrokerConfig) -> None:
        self.services = services
        self.config = config
        self.refused_frames = LogRateLimiter(services.env.clock)
        self.fetch_sessions = FetchSessions(lambda: services.env.rng.getrandbits(31))
        names = {int(api.key): api.name for api in KAFKA_APIS.values()}
        self.apis: ApiTable[int] = ApiTable(services.statistics.registry, "kafka", names)

    def recognizes(self, first_bytes: ReadBuffer) -> bool | None:
        """A frame with the number of an api where the native protocol has its magic."""
        if not self._may_be_a_length(first_bytes):
            return False
        if len(first_bytes) < _KEY_END:
            return None
        return int.from_bytes(first_bytes[LENGTH_SIZE:_KEY_END], "big") <= API_KEY_MAX

    def _may_be_a_length(self, first_bytes: ReadBuffer) -> bool:
        """A length that no first frame may have, that of a TLS record for example, is refused at
        once, in the native dialect."""
        if len(first_bytes) < LENGTH_SIZE:
            return True
        length = int.from_bytes(first_bytes[:LENGTH_SIZE], "big")
        return FRAME_BYTES_MIN <= length <= self.config.limits.frame_bytes_max_before_hello

    def open(self, connection: Peer) -> KafkaSession:
        return KafkaSession(self, connection)


class KafkaSession:
    """The requests and responses of one connection.

    As in Kafka, a request sees the effect of those before it on the connection: it is taken when
    they have their responses. Only Produce behind Produce goes on, since appends stay in order, and
    the batches of many requests are synced together.
    """

    __slots__ = ("_connection", "_context", "_dialect", "_is_producing", "_now_ns", "_services")

    def __init__(self, dialect: KafkaDialect, connection: Peer) -> None:
        self._dialect = dialect
        self._services = dialect.services
        self._connection = connection
        self._context = KafkaContext(
            **context_of(connection, dialect.services.authorizer),
            fetch_sessions=dialect.fetch_sessions,
        )
        self._now_ns = dialect.services.env.clock.monotonic_ns
        self._is_producing = False
        """Whether the last request was a Produce."""

    def next_request(self, reader: FrameReader) -> memoryview | None:
        # A message of SASL without a header is as short as a name and a password may be.
        reader.frame_bytes_min = 0 if self._context.has_bare_tokens else FRAME_BYTES_MIN
        return reader.next_frame()

    def may_overlap(self, reader: FrameReader) -> bool:
        """Produce behind Produce; and what has not arrived, so that the connection is read."""
        if self._context.has_bare_tokens:
            return False
        first_bytes = reader.peek(_KEY_END)
        return len(first_bytes) < _KEY_END or (
            self._is_producing and first_bytes[LENGTH_SIZE:] == _PRODUCE
        )

    def last_request(self, reader: FrameReader) -> None:
        """A frame that is cut short is no request."""

    def refuse(self, error: FramingError) -> Response:
        """Nothing: Kafka's protocol has no response without a request."""
        self._warn(str(error))
        return []

    def refuse_connection(self, reason: str) -> Response:
        """The same."""
        return []

    def handle(self, request: ReadBuffer, *, owned: bool) -> Handled:
        """Handles one whole frame."""
        throttle = self._services.throttle
        if throttle.cache.image.quotas.entities:
            return throttle.timed(self._context, lambda: self._handle(request, owned))
        return self._handle(request, owned)

    def _handle(self, request: ReadBuffer, owned: bool) -> Handled:
        frame = memoryview(request)
        context = self._context
        if context.has_bare_tokens:
            return self._take_token(bytes(frame[LENGTH_SIZE:]))
        try:
            header = read_kafka_header(frame)
        except WireError as error:
            self._abort(f"no request of Kafka's protocol: {error}")
            return None
        api = header.api
        if api is None or not api.min_version <= header.version <= api.max_version:
            return self._unsupported(header)
        if context.sasl is not None and not self._may_request(header):
            return None
        if context.is_authenticated:
            self._connection.lift_frame_limit()
        context.client_id = header.client_id
        self._is_producing = api.key is _PRODUCE_KEY
        counted = self._dialect.apis[header.key]
        requests = counted.requests
        counted.requests = requests + 1
        began_ns = 0 if requests & UNTIMED else self._now_ns()
        if len(frame) > LONG_BODY_BYTES and not self._is_producing:
            return self._respond_in_chunks(api, header, _kept(frame, owned), counted, began_ns)
        try:
            body = frame[header.body_position :]
            message = decode(api.request, body, header.version, may_go_on=True)
        except WireError as error:
            self._abort(_broken(api, header, error))
            return None
        if isinstance(message, ProduceRequest) and not owned and _is_long(message):
            # It is read after this call. Not bytes: an append writes offsets into a batch.
            return self._respond_in_chunks(api, header, _kept(frame, owned), counted, began_ns)
        try:
            handled = HANDLERS[header.key](self._services, context, message, header.version)
            if handled is not None and not isinstance(handled, (Message, BodyParts)):
                return self._respond(header, handled, counted, began_ns)
            response: Response = []
            if handled is not None:
                self._tell_throttle(handled)
                response = _encoded(header, handled)
            self._note_login()
        except Exception as error:
            return self._failed(header, counted, error)
        if began_ns:
            counted.duration.observe(self._now_ns() - began_ns)
        return response

    async def _respond(
        self,
        header: KafkaRequestHeader,
        handled: Coroutine[Any, Any, Body | None],
        counted: ApiStatistics,
        began_ns: int,
    ) -> Response:
        """The response that a handler's coroutine leads to."""
        try:
            body = await handled
            response: Response = []
            if isinstance(body, Message):
                self._tell_throttle(body)
                body = await self._encoded_in_chunks(header, body)
            if body is not None:
                response = _encoded(header, body)
            self._note_login()
        except Exception as error:
            response = self._failed(header, counted, error)
        if began_ns:
            counted.duration.observe(self._now_ns() - began_ns)
        return response

    async def _respond_in_chunks(
        self,
        api: KafkaApi,
        header: KafkaRequestHeader,
        frame: memoryview,
        counted: ApiStatistics,
        began_ns: int,
    ) -> Response:
        """The response to a long request, whose frame is kept."""
        scheduler = self._services.scheduler
        await scheduler.yield_()
        body = frame[header.body_position :]
        decoder = Decoder(api.request, body, header.version, may_go_on=True)
        try:
            while not decoder.step(CHUNK_ENTRIES):
                await scheduler.yield_()
        except WireError as error:
            self._abort(_broken(api, header, error))
            return []
        await scheduler.yield_()

        async def handled() -> Body | None:
            message = decoder.result
            body = HANDLERS[header.key](self._services, self._context, message, header.version)
            return await body if isinstance(body, Coroutine) else body

        return await self._respond(header, handled(), counted, began_ns)

    def _tell_throttle(self, body: Body) -> None:
        """Says in a response for how long the broker takes no further request (KIP-219)."""
        if not self._context.held_until_ms or not isinstance(body, Message):
            return
        if hasattr(body, "throttle_time_ms"):
            body.throttle_time_ms = self._services.throttle.throttle_time_ms(self._context)

    async def _encoded_in_chunks(self, header: KafkaRequestHeader, body: Message) -> BodyParts:
        encoder = Encoder(body, header.version)
        while not encoder.step(CHUNK_ENTRIES):
            await self._services.scheduler.yield_()
        return BodyParts([*encoder.parts], sum(map(len, encoder.parts)))

    def _may_request(self, header: KafkaRequestHeader) -> bool:
        """Whether the client has authenticated, or is about to; else the connection is closed."""
        if header.key not in BEFORE_LOGIN:
            try:
                self._services.authentication.check_may_request(self._context)
            except ApiError as error:
                self._abort(error.message)
                return False
        return True

    def _note_login(self) -> None:
        """Ends the connection of a client that was refused; one that is accepted has new limits."""
        sasl = self._context.sasl
        if sasl is None:
            return
        if sasl.is_refused:
            self._connection.finish("the client was not authenticated")
        elif self._context.is_authenticated:
            self._connection.lift_frame_limit()

    async def _take_token(self, token: bytes) -> Response:
        """A message of SASL without a header (SaslHandshake 0); a refusal has no response."""
        try:
            progress = await self._services.authentication.advance(self._context, token)
        except ApiError as error:
            self._connection.finish(error.message)
            return []
        self._context.has_bare_tokens = not progress.is_complete
        self._note_login()
        return [len(progress.message).to_bytes(LENGTH_SIZE, "big") + progress.message]

    def _unsupported(self, header: KafkaRequestHeader) -> Handled:
        """Closes the connection, as Kafka does, but for ApiVersions."""
        counted = self._dialect.apis[header.key]
        counted.requests += 1
        counted.count_error(ErrorCode.UNSUPPORTED_VERSION)
        if header.key == KafkaApiKey.API_VERSIONS:
            header.version = 0
            return _encoded(header, unsupported_version())
        name = f"api {header.key}" if header.api is None else header.api.name
        self._abort(f"{name} in version {header.version}, which this broker does not have")
        return None

    def _failed(
        self, header: KafkaRequestHeader, counted: ApiStatistics, error: Exception
    ) -> Response:
        """Closes the connection of a request that must have no response, or that met a bug."""
        if isinstance(error, CloseConnection):
            for code in error.error_codes:
                counted.count_error(code)
            # The responses before it are still sent.
            self._connection.finish(str(error))
            return []
        counted.count_error(ErrorCode.UNKNOWN_SERVER_ERROR)
        if (suppressed := self._dialect.refused_frames.take()) is not None:
            log.error(
                "request failed",
                peer=self._connection.peer,
                api=header.key,
                version=header.version,
                suppressed=suppressed,
                exc_info=error,
            )
        self._connection.abort("a request failed")
        return []

    def _abort(self, reason: str) -> None:
        self._warn(reason)
        self._connection.abort(reason)

    def _warn(self, reason: str) -> None:
        if (suppressed := self._dialect.refused_frames.take()) is not None:
            peer = self._connection.peer
            log.warning("request refused", peer=peer, reason=reason, suppressed=suppressed)


def _kept(frame: memoryview, owned: bool) -> memoryview:
    return frame if owned else memoryview(bytearray(frame))


def _is_long(request: ProduceRequest) -> bool:
    return sum(len(topic.partitions) for topic in request.topics) > CHUNK_BATCHES


def _broken(api: KafkaApi, header: KafkaRequestHeader, error: WireError) -> str:
    where = header.body_position + error.position
    return f"{api.name} {header.version} is broken: {error.reason}, at byte {where} of the frame"


def _encoded(header: KafkaRequestHeader, body: Body) -> Response:
    if isinstance(body, BodyParts):
        prefix = kafka_response_prefix(header, body.size)
        first, *others = body.parts
        return [prefix + first, *others] if isinstance(first, bytes) else [prefix, *body.parts]
    encoded = encode(body, header.version)
    return [kafka_response_prefix(header, len(encoded)) + encoded]
