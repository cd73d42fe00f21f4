"""The input of `millrace produce`: bytes of files or of stdin, cut into whole lines.

Owns the reading, outside of the event loop, and its bounds. `input_format` parses the lines.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from millrace_cli.exits import InputError

READ_BYTES = 1 << 20
"""Bytes of one read: enough records for a request to each of several partitions."""
LINE_BYTES_MAX = 64 << 20
"""Longest line. It bounds the memory for a file without line ends."""
_STDIN = 0


async def file_chunks(path: Path, on_read: Callable[[int], None]) -> AsyncIterator[bytes]:
    """The bytes of a file, in order; calls `on_read` with the size of each. Raises `OSError`."""
    import aiofiles

    async with aiofiles.open(path, "rb") as file:
        while chunk := await file.read(READ_BYTES):
            on_read(len(chunk))
            yield chunk


async def stdin_chunks() -> AsyncIterator[bytes]:
    """The bytes of stdin, as soon as they arrive, until its end.

    A daemon thread reads. A thread of a pool would keep the process alive after ^C until the user
    types a line. A non-blocking stdin would stay non-blocking for other processes that share it.
    The thread reads the descriptor itself, because a buffered reader has a lock that the
    interpreter takes at its end.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    # At most 16 chunks are read ahead.
    capacity = threading.Semaphore(16)

    def read() -> None:
        while True:
            capacity.acquire()
            try:
                chunk = os.read(_STDIN, READ_BYTES)
            except OSError:
                # Stdin is closed, or the terminal is gone.
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
        # A pipe returns 64 KiB at a time. Chunks that arrived during the last send are joined.
        while not queue.empty() and len(pieces) < 16:
            pieces.append(queue.get_nowait())
        capacity.release(len(pieces))
        ended = not pieces[-1]
        if chunk := b"".join(pieces):
            yield chunk


class Lines:
    r"""Cuts chunks into whole lines and counts them.

    With `quoted`, lines may contain line ends between double quotes, as in CSV (RFC 4180), and line
    ends stay as they are. Otherwise a `\r` before a line end is removed.
    """

    def __init__(self, *, quoted: bool = False) -> None:
        self.count = 0
        """Lines returned so far."""
        self._quoted = quoted
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        r"""The lines that are complete now, without their `\n`. Raises `InputError`."""
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
        """The last line, if the input ends without a line end."""
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
