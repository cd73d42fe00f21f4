"""TAIL: new records as lines, for as long as the peer listens.

An entry in the partition's watch list, which has a task only while there is something to send: from
when the high watermark moves until the peer has been sent all of it. It reads in turns with others:
a record that a thousand of them follow is written a thousand times, between the requests of others.
"""

from __future__ import annotations

import asyncio

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.dialects.text.commands import read_lines
from millrace_server.dialects.text.lines import error_line, reply
from millrace_server.net.stream import Stream
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.partitions.partition import Partition

PIECE_RECORDS = 100
PIECE_CHARACTERS = 64 << 10
"""Sent in one go, whichever is reached first; between pieces the peer has to listen."""


class Tail:
    """Follows one partition from its high watermark on, until `close` or an error."""

    __slots__ = ("_broker", "_has_moved", "_offset", "_partition", "_stream", "_task")

    def __init__(self, broker: Broker, partition: Partition, stream: Stream) -> None:
        self._broker = broker
        self._offset = partition.high_watermark
        self._partition = partition
        self._stream = stream
        self._has_moved = False
        self._task: asyncio.Task[None] | None = None
        partition.watchers[self._look_soon] = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will be sent."""
        return self._stream.ended

    def close(self) -> None:
        """The peer is gone."""
        self._partition.watchers.pop(self._look_soon, None)
        if self._task is not None:
            self._task.cancel()

    def _look_soon(self) -> None:
        # Not at once: a watcher is called in the midst of somebody's append.
        self._has_moved = True
        if self._task is None:
            self._task = self._broker.env.spawn.task(self._send_all(), name="tail")

    async def _send_all(self) -> None:
        try:
            while self._has_moved and not self._stream.ended:
                self._has_moved = False
                await self._send_to_end()
        except CORE_ERRORS as error:
            self._partition.watchers.pop(self._look_soon, None)
            self._stream.finish(reply([error_line(as_api_error(error))]))
        finally:
            self._task = None

    async def _send_to_end(self) -> None:
        while not self._stream.ended:
            await self._broker.turns.turn()
            if self._partition.is_abandoned:
                raise _deleted(self._partition)
            lines, self._offset = await read_lines(
                self._broker, self._partition, self._offset, PIECE_RECORDS, room=PIECE_CHARACTERS
            )
            if not lines:
                return
            if not self._stream.send(reply(lines)):
                await self._stream.room()


def _deleted(partition: Partition) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {partition.topic!r} was deleted")
