"""Frames in, frames out: which handler answers, and what is said when none can.

A frame that is no frame of this protocol ends the connection: nothing after it can be trusted.
Everything else is answered, and the connection lives on: an unknown api or version with the
range there is, a body that does not decode with the position of the byte that is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial

from millrace_protocol.api import APIS, Api, ApiKey
from millrace_protocol.codec import decode, encode
from millrace_protocol.compiled import decode_in_pieces, encode_in_pieces
from millrace_protocol.errors import ErrorCode, WireError
from millrace_protocol.framing import (
    RequestHeader,
    read_request_header,
    refusal_frame,
    response_frame,
)
from millrace_protocol.hot import produce_count
from millrace_protocol.messages.refusal import Refusal
from millrace_protocol.records import HEADER_SIZE
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import (
    Answer,
    Answered,
    AnswerPieces,
    BodyParts,
    frame_parts,
)
from millrace_server.dialects.native.handlers import HANDLERS
from millrace_server.environment.seams import Reply
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.loop.fair_scheduler import Pieces
from millrace_server.net.connection import Connection
from millrace_server.services.produce import PIECE_BATCHES

LONG_BODY_BYTES = 4 << 10
"""A longer body waits for a turn before it is decoded: it names more than a hundred things."""
MANY_BATCHES_BYTES = PIECE_BATCHES * HEADER_SIZE
"""A shorter body names few things, and not more batches than are appended in one go."""
assert MANY_BATCHES_BYTES < LONG_BODY_BYTES

log = get_logger("millrace.native")


class NativeDialect:
    """Answers the frames of all connections of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waits: dict[Connection, dict[asyncio.Future[Answer | AnswerPieces], None]] = {}
        self._lines = LogRateLimiter(broker.env.clock)

    def closed(self, connection: Connection) -> None:
        """The connection is gone, and with it what it still waited for."""
        for wait in self._waits.pop(connection, ()):
            wait.cancel()

    def frame(
        self, connection: Connection, frame: memoryview, owned: bool
    ) -> Reply | asyncio.Future[Reply | Pieces] | Pieces | None:
        """Answers one whole frame; `frame` is only valid during the call unless `owned`."""
        try:
            header = read_request_header(frame)
        except WireError as error:
            if (unsaid := self._lines.take()) is not None:
                log.warning("frame refused", peer=connection.peer, reason=str(error), unsaid=unsaid)
            connection.abort(f"no frame of this protocol: {error}")
            return None
        connection.client_id = header.client_id
        try:
            if len(frame) > MANY_BATCHES_BYTES and _names_many(header, frame):
                # It is read after this call. Not bytes: an append writes offsets into a batch.
                kept = frame if owned else memoryview(bytearray(frame))
                return self._in_turns(connection, header, self._read(connection, header, kept))
            answered = self._handle(connection, header, frame)
            if isinstance(answered, Message | BodyParts):
                return _encode(header, answered)
            if isinstance(answered, Generator):
                return self._in_turns(connection, header, answered)
            return self._said(connection, header, answered)
        except Exception as error:
            return [self._failed(connection, header, error)]

    def _read(
        self, connection: Connection, header: RequestHeader, frame: memoryview
    ) -> AnswerPieces:
        """Handles a long request when its turn comes."""
        yield None
        api = _known(header)
        try:
            request = yield from decode_in_pieces(
                api.request, frame[header.body_position :], header.version
            )
        except WireError as error:
            raise _broken(header, error) from None
        yield None
        answered = HANDLERS[api.key](self._broker, connection, request)
        if isinstance(answered, Generator):
            answered = yield from answered
        return answered

    def _in_turns(
        self, connection: Connection, header: RequestHeader, pieces: AnswerPieces
    ) -> Pieces:
        try:
            answered = yield from pieces
            if isinstance(answered, Message):
                parts = yield from encode_in_pieces(answered, header.version)
                answered = BodyParts([*parts], sum(map(len, parts)))
            return self._said(connection, header, answered)
        except Exception as error:
            return [self._failed(connection, header, error)]

    def _said(
        self,
        connection: Connection,
        header: RequestHeader,
        answered: Answer | asyncio.Future[Answer | AnswerPieces] | None,
    ) -> Reply | asyncio.Future[Reply | Pieces] | None:
        if answered is None:
            return None
        if isinstance(answered, asyncio.Future):
            return self._later(connection, header, answered)
        return _encode(header, answered)

    def _handle(self, connection: Connection, header: RequestHeader, frame: memoryview) -> Answered:
        api = _known(header)
        try:
            request = decode(api.request, frame[header.body_position :], header.version)
        except WireError as error:
            raise _broken(header, error) from None
        return HANDLERS[api.key](self._broker, connection, request)

    def _later(
        self,
        connection: Connection,
        header: RequestHeader,
        future: asyncio.Future[Answer | AnswerPieces],
    ) -> asyncio.Future[Reply | Pieces]:
        reply: asyncio.Future[Reply | Pieces] = asyncio.get_running_loop().create_future()
        future.add_done_callback(partial(self._finish, connection, header, reply))
        if not isinstance(future, asyncio.Task):
            self._waits.setdefault(connection, {})[future] = None
        return reply

    def _finish(
        self,
        connection: Connection,
        header: RequestHeader,
        reply: asyncio.Future[Reply | Pieces],
        future: asyncio.Future[Answer | AnswerPieces],
    ) -> None:
        if (waits := self._waits.get(connection)) is not None:
            waits.pop(future, None)
            if not waits:
                del self._waits[connection]
        if future.cancelled():
            reply.cancel()
            return
        parts: Reply | Pieces
        try:
            answer = future.result()
            if isinstance(answer, Generator):
                parts = self._in_turns(connection, header, answer)
            else:
                parts = _encode(header, answer)
        except Exception as error:
            parts = [self._failed(connection, header, error)]
        reply.set_result(parts)

    def _failed(self, connection: Connection, header: RequestHeader, error: Exception) -> bytes:
        """The answer to a request that was refused, or that met a bug of ours."""
        if isinstance(error, ApiError):
            return _refusal(header, error)
        if (unsaid := self._lines.take()) is not None:
            log.error(
                "request failed",
                peer=connection.peer,
                api=header.api,
                unsaid=unsaid,
                exc_info=error,
            )
        return _refusal(header, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))


def _known(header: RequestHeader) -> Api:
    """The api that is asked for. Raises `ApiError` when there is none, or not in this version."""
    if header.api not in HANDLERS:
        raise ApiError(
            ErrorCode.UNKNOWN_API,
            f"The broker has no api with key {header.api}; Hello lists the apis",
        )
    api = APIS[ApiKey(header.api)]
    if not api.min_version <= header.version <= api.max_version:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The broker has {api.name} in versions {api.min_version} to {api.max_version}, not in "
            f"{header.version}",
        )
    return api


def _broken(header: RequestHeader, error: WireError) -> ApiError:
    name = APIS[ApiKey(header.api)].name
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"The body of the {name} request is broken: {error.reason}, at byte "
        f"{header.body_position + error.position} of the frame",
    )


def _names_many(header: RequestHeader, frame: memoryview) -> bool:
    """Whether a body is long, and not merely for its records, which are not decoded."""
    if header.api == ApiKey.PRODUCE:
        return produce_count(frame[header.body_position :]) > PIECE_BATCHES
    return len(frame) > LONG_BODY_BYTES


def _encode(header: RequestHeader, answer: Answer) -> Reply:
    if isinstance(answer, BodyParts):
        return frame_parts(
            answer,
            api=header.api,
            version=header.version,
            correlation_id=header.correlation_id,
        )
    return [
        response_frame(
            api=header.api,
            version=header.version,
            correlation_id=header.correlation_id,
            body=encode(answer, header.version),
        )
    ]


def _refusal(header: RequestHeader, refused: ApiError) -> bytes:
    min_version = max_version = -1
    if refused.code is ErrorCode.UNSUPPORTED_VERSION:
        api = APIS[ApiKey(header.api)]
        min_version, max_version = api.min_version, api.max_version
    return refusal_frame(
        api=header.api,
        version=header.version,
        correlation_id=header.correlation_id,
        error_code=refused.code,
        refusal=Refusal(refused.message, min_version, max_version),
    )
