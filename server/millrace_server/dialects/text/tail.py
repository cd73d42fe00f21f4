"""TAIL: new records as lines, for as long as the peer listens.

A coroutine that waits while there is nothing to send: from the end of the log until the high
watermark moves. Each chunk that it reads is a chunk of the fair scheduler: a record that a thousand
peers follow is written a thousand times, between the requests of others.
"""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.dialects.text.commands import read_lines
from millrace_server.dialects.text.lines import encoded
from millrace_server.loop.completion import Completion
from millrace_server.net.dialect import Peer
from millrace_server.net.pending_response import PendingResponse
from millrace_server.partitions.partition import Partition
from millrace_server.services.services import Services

CHUNK_RECORDS = 100
CHUNK_CHARACTERS = 64 << 10
"""Sent in one chunk, whichever is reached first; between chunks the peer has to read."""


async def follow(
    services: Services, partition: Partition, connection: Peer, stream: PendingResponse
) -> None:
    """Sends the lines of new records from the high watermark on; ends with an error alone.

    Raises `ApiError` when the topic is deleted, and for a record that cannot be read.
    """
    offset = partition.high_watermark
    watch = _Watch()
    partition.watchers.add(watch)
    try:
        while True:
            await watch.moved()
            while True:
                await services.scheduler.yield_()
                if partition.is_abandoned:
                    raise ApiError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        f"Topic {partition.topic!r} was deleted",
                    )
                lines, offset = await read_lines(
                    services, partition, offset, CHUNK_RECORDS, characters_max=CHUNK_CHARACTERS
                )
                if not lines:
                    break
                if not connection.send_part(stream, encoded(lines)):
                    await connection.drained()
    finally:
        partition.watchers.remove(watch)


class _Watch:
    """Whether the high watermark has moved since the last look."""

    __slots__ = ("_has_moved", "_waiting")

    def __init__(self) -> None:
        self._has_moved = False
        self._waiting: Completion[None] | None = None

    async def moved(self) -> None:
        """Returns when it has."""
        if not self._has_moved:
            self._waiting = Completion()
            await self._waiting
            self._waiting = None
        self._has_moved = False

    def on_moved(self) -> None:
        """See `Watcher`."""
        self._has_moved = True
        if self._waiting is not None:
            self._waiting.complete(None)
