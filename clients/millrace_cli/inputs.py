"""Input of `millrace produce`: bytes of files or of stdin, cut into whole lines.

Owns the reading, off the event loop, and its bounds. Knows nothing of what a line means.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from millrace_cli.exits import InputError

READ_BYTES = 1 << 20
"""Read from a file at once: enough records for a request to each of several partitions."""
LINE_BYTES_MAX = 64 << 20
"""Longest line; a file without line ends is not one to read whole into memory."""
_STDIN = 0


async def file_chunks(path: Path, on_read: Callable[[int], None]) -> AsyncIterator[bytes]:
    """The bytes of a file, in order; tells `on_read` how many came. Raises `OSError`."""
    import aiofiles

    async with aiofiles.open(path, "rb") as file:
        while chunk := await file.read(READ_BYTES):
            on_read(len(chunk))
            yield chunk


async def stdin_chunks() -> AsyncIterator[bytes]:
    """What comes from stdin, as soon as it comes, until its end.

    Read in a daemon thread: a thread of a pool would keep the process alive after ^C until the
    next line is typed, and stdin made non-blocking would stay so for whoever shares it. It reads
    the descriptor itself, because a thread that is stopped inside a buffered reader holds a lock
    that the interpreter wants at its end.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    # What is read ahead is bounded: 16 chunks.
    room = threading.Semaphore(16)

    def read() -> None:
        while True:
            room.acquire()
            try:
                chunk = os.read(_STDIN, READ_BYTES)
            except OSError:
                # Closed, or a terminal that is gone.
                chunk = b""
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:
                # The loop is closed: the command has ended.
                return
            if not chunk:
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    ended = False
    while not ended:
        pieces = [await queue.get()]
        # A pipe gives 64 KiB at a time; what came while the last records were sent goes together.
        while not queue.empty() and len(pieces) < 16:
            pieces.append(queue.get_nowait())
        room.release(len(pieces))
        ended = not pieces[-1]
        if chunk := b"".join(pieces):
            yield chunk


class Lines:
    r"""Cuts chunks into whole lines and counts them.

    `quoted` lines may hold line ends between double quotes, as CSV's do (RFC 4180), so theirs stay
    as they are; of others the `\r` before a line end is dropped with it.
    """

    def __init__(self, *, quoted: bool = False) -> None:
        self.count = 0
        """Line ends that were handed out so far."""
        self._quoted = quoted
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        r"""The lines that are whole now, without their `\n`. Raises `InputError`."""
        data = self._rest + chunk
        cut = data.rfind(b"\n") + 1
        if self._quoted:
            while cut and data.count(b'"', 0, cut) % 2:
                cut = data.rfind(b"\n", 0, cut - 1) + 1
        self._rest = data[cut:]
        if len(self._rest) > LINE_BYTES_MAX:
            raise InputError(f"line {self.count + 1} is longer than {LINE_BYTES_MAX} bytes")
        return self._lines(data[:cut])

    def end(self) -> list[bytes]:
        """What is left when the input ends: a last line without an end."""
        rest, self._rest = self._rest, b""
        return self._lines(rest)

    def _lines(self, data: bytes) -> list[bytes]:
        if not data:
            return []
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        self.count += len(lines)
        if self._quoted or b"\r" not in data:
            return lines
        return [line.removesuffix(b"\r") for line in lines]
