"""Lines in, lines out: which command answers, and the two that are not request and answer.

`TAIL` streams records until the peer goes away; `QUIT` ends the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.dialects.text.commands import (
    COMMANDS,
    number,
    usage_error,
)
from millrace_server.dialects.text.lines import Lines, error_line, reply
from millrace_server.dialects.text.tail import Tail
from millrace_server.environment.seams import Reply
from millrace_server.net.connection import Connection
from millrace_server.net.stream import Stream
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error

_OFF = "The text dialect is switched off on this broker (text_dialect = false)"


class TextDialect:
    """Answers the lines of all connections of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tails: dict[Connection, Tail] = {}
        self._unanswered: dict[Connection, asyncio.Task[Reply]] = {}

    def closed(self, connection: Connection) -> None:
        """The connection is gone, and what it followed with it."""
        if (tail := self._tails.pop(connection, None)) is not None:
            tail.close()

    def line(
        self, connection: Connection, line: bytes
    ) -> Reply | asyncio.Future[Reply] | Stream | None:
        """Answers one typed line; an empty one is not answered."""
        name, _, rest = line.decode("utf-8", "surrogateescape").lstrip(" \t").partition(" ")
        name = name.strip().upper()
        if not name:
            return None
        if name == "TAIL":
            return self._tail(connection, rest)
        if name == "QUIT":
            connection.finish("quit")
            return reply(["OK bye"])
        before = self._unanswered.get(connection)
        if before is not None:
            return self._remember(connection, self._after(before, name, rest))
        answer = self._answer(name, rest)
        if isinstance(answer, list):
            return reply(answer)
        return self._remember(connection, self._later(answer))

    def _remember(
        self, connection: Connection, work: Coroutine[Any, Any, Reply]
    ) -> asyncio.Task[Reply]:
        """Runs `work` as the connection's last command; what is typed next waits for it.

        A person who types PRODUCE and then FETCH expects to see the record.
        """
        task = self._broker.env.spawn.task(work, name=f"text {connection.peer}")
        self._unanswered[connection] = task

        def forget(done: asyncio.Task[Reply]) -> None:
            if self._unanswered.get(connection) is done:
                del self._unanswered[connection]

        task.add_done_callback(forget)
        return task

    async def _after(self, before: asyncio.Task[Reply], name: str, rest: str) -> Reply:
        await asyncio.wait([before])
        answer = self._answer(name, rest)
        return reply(answer) if isinstance(answer, list) else await self._later(answer)

    async def _later(self, answer: Coroutine[Any, Any, Lines]) -> Reply:
        try:
            return reply(await answer)
        except CORE_ERRORS as error:
            return reply([error_line(as_api_error(error))])

    def _answer(self, name: str, rest: str) -> Lines | Coroutine[Any, Any, Lines]:
        try:
            return self._run(name, rest)
        except CORE_ERRORS as error:
            return [error_line(as_api_error(error))]

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
        return command.run(self._broker, *words)

    def _tail(self, connection: Connection, rest: str) -> Stream:
        stream = connection.stream()
        before = self._unanswered.get(connection)
        if before is None:
            self._follow(connection, rest, stream)
        else:
            before.add_done_callback(lambda _: self._follow(connection, rest, stream))
        return stream

    def _follow(self, connection: Connection, rest: str, stream: Stream) -> None:
        words = rest.split()
        try:
            self._check_on()
            tail = self._tails.get(connection)
            if tail is not None and not tail.ended:
                raise usage_error("This connection follows a partition already; open another")
            if len(words) != 2:
                raise usage_error("Type TAIL TOPIC PARTITION")
            partition = self._broker.partitions.get(words[0], number(words[1], "PARTITION"))
        except ApiError as refused:
            stream.finish(reply([error_line(refused)]))
            return
        if not stream.ended:
            self._tails[connection] = Tail(self._broker, partition, stream)

    def _check_on(self) -> None:
        if not self._broker.config.text_dialect:
            raise ApiError(ErrorCode.INVALID_REQUEST, _OFF)
