"""Records to stdout from an event loop: the loop runs on while the reader of stdout stalls.

Owns the wait for stdout, and the count of the bytes that have left the process. A member of a group
sends heartbeats and handles signals during the wait. `standard_output` makes each write whole.
"""

from __future__ import annotations

import asyncio
import select
import sys
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import BinaryIO

_PIECE_BYTES = select.PIPE_BUF
"""A pipe that is ready takes so many bytes at once. A larger write may block."""
_FILE_PIECE_BYTES = 1 << 20
_PIECES_PER_PASS = 64
"""Pieces between two passes of the event loop, so that heartbeats and signals are not delayed."""


class RecordOutput:
    """Writes to `sys.stdout`. `whole` is how many of the last records have left completely."""

    def __init__(self) -> None:
        self.whole = 0
        self.is_writing = False
        self._stream: BinaryIO = sys.stdout.buffer
        self._readiness = _Readiness.of(self._stream)

    async def write(self, records: Sequence[bytes]) -> None:
        """Returns when all records have left the process. Raises `OSError`.

        After an error, or when it was cancelled, `whole` tells how many of them have.
        """
        self.whole, self.is_writing = 0, True
        written = 0
        try:
            async for size in self._pieces(b"".join(records)):
                written += size
        finally:
            self.is_writing = False
            self.whole = bisect_right(list(accumulate(map(len, records))), written)

    async def _pieces(self, data: bytes) -> AsyncIterator[int]:
        """Writes `data`, and yields the size of each piece that has left."""
        size = _FILE_PIECE_BYTES if self._readiness is None else _PIECE_BYTES
        for count, start in enumerate(range(0, len(data), size), 1):
            if self._readiness is not None:
                await self._readiness.wait()
            piece = data[start : start + size]
            self._stream.write(piece)
            self._stream.flush()
            yield len(piece)
            if count % _PIECES_PER_PASS == 0:
                await asyncio.sleep(0)

    def close(self) -> None:
        """Ends the waiting for stdout; stdout itself stays open."""
        if self._readiness is not None:
            self._readiness.close()


class _Readiness:
    """Waits in an event loop until a descriptor takes bytes.

    The loop watches an epoll descriptor that watches stdout. An event loop makes the descriptors
    that it watches itself non-blocking.
    """

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll

    @classmethod
    def of(cls, stream: BinaryIO) -> _Readiness | None:
        """None for what is always ready: a regular file, or a stream without a descriptor."""
        epoll = select.epoll()
        try:
            epoll.register(stream.fileno(), select.EPOLLOUT)
        except OSError:
            # A regular file is refused with EPERM. `io.UnsupportedOperation` is an `OSError`.
            epoll.close()
            return None
        return cls(epoll)

    async def wait(self) -> None:
        if self._epoll.poll(0):
            return
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_reader(self._epoll.fileno(), _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._epoll.fileno())

    def close(self) -> None:
        self._epoll.close()


def _set(ready: asyncio.Future[None]) -> None:
    with suppress(asyncio.InvalidStateError):
        ready.set_result(None)
