"""Lines in, lines out: which command answers, and the two that are not request and response.

`TAIL` streams records until the peer goes away; `QUIT` ends the connection.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Coroutine
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import TEXT_OPENINGS
from millrace_server.api_error import ApiError
from millrace_server.config import BrokerConfig
from millrace_server.dialects.login import context_of
from millrace_server.dialects.text.authentication import auth_message
from millrace_server.dialects.text.commands import (
    COMMANDS,
    CONVERSATIONS,
    number,
    usage_error,
)
from millrace_server.dialects.text.line_framing import last_line, next_line
from millrace_server.dialects.text.lines import Lines, encoded, error_line
from millrace_server.dialects.text.tail import follow
from millrace_server.environment.seams import ReadBuffer, Response
from millrace_server.net.dialect import Handled, Peer
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.statistics.requests import UNTIMED, ApiStatistics, ApiTable
from millrace_wire.frame_reader import FrameReader, FramingError

BEFORE_LOGIN = ("HELP", "AUTH")
"""What may be typed on a listener with SASL before the client has authenticated, beside QUIT."""
_OFF = "The text dialect is switched off on this broker (text_dialect = false)"


class TextDialect:
    """The dialect of typed lines (wire_spec.md W-8)."""

    def __init__(self, services: Services, config: BrokerConfig) -> None:
        self.services = services
        self.config = config
        names = [*COMMANDS, *(usage.split()[0] for usage, _ in CONVERSATIONS)]
        registry = services.statistics.registry
        self.apis: ApiTable[str] = ApiTable(registry, "text", {name: name for name in names})

    def recognizes(self, first_bytes: ReadBuffer) -> bool | None:
        """A printable character or white space; the first byte of a frame is neither."""
        return first_bytes[0] in TEXT_OPENINGS

    def open(self, connection: Peer) -> TextSession:
        return TextSession(self, connection)


class TextSession:
    """The lines of one connection.

    A line is handled when the one before it has its answer: a person who types PRODUCE and then
    FETCH expects to see the record.
    """

    __slots__ = ("_connection", "_context", "_dialect", "_is_following", "_services")

    def __init__(self, dialect: TextDialect, connection: Peer) -> None:
        self._dialect = dialect
        self._services = dialect.services
        self._connection = connection
        self._context = RequestContext(**context_of(connection, dialect.services.authorizer))
        self._is_following = False

    def next_request(self, reader: FrameReader) -> bytes | None:
        return next_line(reader, line_bytes_max=self._dialect.config.limits.line_bytes_max)

    def may_overlap(self, reader: FrameReader) -> bool:
        """Each line has its answer before the next one is taken."""
        return False

    def last_request(self, reader: FrameReader) -> bytes | None:
        """A line without a line feed, before the end of the input."""
        return last_line(reader)

    def refuse(self, error: FramingError) -> Response:
        """Names the limit."""
        limit = self._dialect.config.limits.line_bytes_max
        return encoded([_invalid(f"The line is longer than {limit} bytes")])

    def refuse_connection(self, reason: str) -> Response:
        return encoded([error_line(ApiError(ErrorCode.BROKER_STOPPING, reason))])

    def handle(self, request: ReadBuffer, *, owned: bool) -> Handled:
        """Answers one typed line; an empty one is not answered."""
        throttle = self._services.throttle
        if throttle.cache.image.quotas.entities:
            return throttle.timed(self._context, lambda: self._handle(request))
        return self._handle(request)

    def _handle(self, request: ReadBuffer) -> Handled:
        line = bytes(request).decode("utf-8", "surrogateescape")
        name, _, rest = line.lstrip(" \t").partition(" ")
        name = name.strip().upper()
        if not name:
            return None
        counted = self._dialect.apis[name]
        began_ns = 0 if counted.requests & UNTIMED else self._services.env.clock.monotonic_ns()
        counted.requests += 1
        if name == "QUIT":
            self._connection.finish("quit")
            return encoded(["OK bye"])
        try:
            if name not in BEFORE_LOGIN:
                self._services.authentication.check_may_request(self._context)
            if name == "TAIL":
                return self._tail(rest, counted)
            answer = self._authenticate(rest) if name == "AUTH" else self._run(name, rest)
        except CORE_ERRORS as error:
            return self._failed(counted, error)
        if not isinstance(answer, list):
            return self._answered(answer, counted, began_ns)
        self._time(counted, began_ns)
        return encoded(answer)

    def _run(self, name: str, rest: str) -> Lines | Coroutine[Any, Any, Lines]:
        self._check_on()
        command = COMMANDS.get(name)
        if command is None:
            raise usage_error(f"There is no command {name[:32]!r}")
        at_least, at_most = command.words
        # One space ends a word before a value; every further one belongs to the value.
        words = rest.split(" ", at_most) if command.takes_rest else rest.split()
        if not at_least <= len(words) <= at_most + command.takes_rest or "" in words[:at_least]:
            raise usage_error(f"Type {command.usage}")
        return command.run(self._services, self._context, *words)

    async def _answered(
        self, answer: Coroutine[Any, Any, Lines], counted: ApiStatistics, began_ns: int
    ) -> Response:
        try:
            response = encoded(await answer)
        except CORE_ERRORS as error:
            response = self._failed(counted, error)
        self._time(counted, began_ns)
        return response

    def _time(self, counted: ApiStatistics, began_ns: int) -> None:
        if began_ns:
            counted.duration.observe(self._services.env.clock.monotonic_ns() - began_ns)

    async def _tail(self, rest: str, counted: ApiStatistics) -> Response:
        stream = self._connection.stream()
        words = rest.split()
        try:
            self._check_on()
            if self._is_following:
                raise usage_error("This connection follows a partition already; open another")
            if len(words) != 2:
                raise usage_error("Type TAIL TOPIC PARTITION")
            records = self._services.records.open(
                self._context, words[0], number(words[1], "PARTITION")
            )
            self._is_following = True
            try:
                await follow(self._services, self._context, records, self._connection, stream)
            finally:
                self._is_following = False
        except CORE_ERRORS as error:
            return self._failed(counted, error)
        return []

    async def _authenticate(self, rest: str) -> Lines:
        """`AUTH PLAIN USER PASSWORD`, or `AUTH MECHANISM BASE64` for each message."""
        self._check_on()
        mechanism, _, message = rest.strip().partition(" ")
        progress = await self._services.authentication.authenticate(
            self._context, mechanism.upper(), auth_message(mechanism.upper(), message)
        )
        shown = [b64encode(progress.message).decode()] if progress.message else []
        if progress.is_complete:
            self._connection.lift_frame_limit()
            shown.append(f"authenticated as {self._context.principal}")
        return [" ".join(["OK", *shown])]

    def _failed(self, counted: ApiStatistics, error: Exception) -> Response:
        refused = as_api_error(error)
        counted.count_error(refused.code)
        sasl = self._context.sasl
        if sasl is not None and sasl.is_refused:
            self._connection.finish(refused.message)
        return encoded([error_line(refused)])

    def _check_on(self) -> None:
        if not self._dialect.config.text_dialect:
            raise ApiError(ErrorCode.INVALID_REQUEST, _OFF)


def _invalid(message: str) -> str:
    return error_line(ApiError(ErrorCode.INVALID_REQUEST, message))
