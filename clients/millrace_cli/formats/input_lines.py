"""The input of `millrace produce`: bytes of files or of stdin, cut into whole lines.

Owns the reading, outside of the event loop, and its bounds. `input_format` parses the lines.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable

from millrace_cli.exits import InputError

READ_BYTES = 1 << 20
"""Bytes of one read: enough records for a request to each of several partitions."""
LINE_BYTES_MAX = 64 << 20
"""Longest line. It bounds the memory for a file without line ends."""
_STDIN = 0


class Inputs:
    """The bytes of files and of stdin, in chunks, until `stop`."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._stdin: asyncio.Queue[bytes] | None = None

    def stop(self) -> None:
        """Ends the input behind what has been read."""
        self.is_stopped = True
        if self._stdin is not None:
            self._stdin.put_nowait(b"")

    async def chunks(self, name: str, on_read: Callable[[int], None]) -> AsyncIterator[bytes]:
        """The bytes of a file, or of stdin for `-`. Raises `OSError`.

        Calls `on_read` with the size of each chunk of a file.
        """
        chunks = self._stdin_chunks() if name == "-" else self._file_chunks(name, on_read)
        async for chunk in chunks:
            yield chunk

    async def _file_chunks(self, name: str, on_read: Callable[[int], None]) -> AsyncIterator[bytes]:
        import aiofiles

        async with aiofiles.open(name, "rb") as file:
            while not self.is_stopped and (chunk := await file.read(READ_BYTES)):
                on_read(len(chunk))
                yield chunk

    async def _stdin_chunks(self) -> AsyncIterator[bytes]:
        """The bytes of stdin, as soon as they arrive, until its end.

        A daemon thread reads. A thread of a pool would keep the process alive after ^C until the
        user types a line. A non-blocking stdin would stay non-blocking for other processes that
        share it. The thread reads the descriptor itself, because a buffered reader has a lock that
        the interpreter takes at its end.
        """
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._stdin = queue
        # At most 16 chunks are read ahead.
        capacity = threading.Semaphore(16)
        reading = (asyncio.get_running_loop(), queue, capacity)
        threading.Thread(target=_read_stdin, args=reading, name="stdin", daemon=True).start()
        ended = self.is_stopped
        while not ended:
            pieces = [await queue.get()]
            # A pipe returns 64 KiB at a time. Chunks that arrived during the last send are joined.
            while pieces[-1] and not queue.empty() and len(pieces) < 16:
                pieces.append(queue.get_nowait())
            capacity.release(len(pieces))
            ended = not pieces[-1]
            if chunk := b"".join(pieces):
                yield chunk


def _read_stdin(
    loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[bytes], capacity: threading.Semaphore
) -> None:
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


class Lines:
    r"""Cuts chunks into records at a delimiter, and counts them.

    With `quoted`, lines may contain line ends between double quotes, as in CSV (RFC 4180). All
    other bytes stay as they are, a `\r` before a line end too.
    """

    def __init__(self, *, quoted: bool = False, delimiter: bytes = b"\n") -> None:
        """`quoted` goes with the delimiter `\\n`."""
        self.count = 0
        """Lines returned so far."""
        self._quoted = quoted
        self._delimiter = delimiter
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now, without their delimiter. Raises `InputError`."""
        data = self._rest + chunk
        cut = len(data)
        if self._quoted:
            cut = data.rfind(b"\n") + 1
            while cut and data.count(b'"', 0, cut) % 2:
                cut = data.rfind(b"\n", 0, cut - 1) + 1
        *lines, last = data[:cut].split(self._delimiter)
        self._rest = last + data[cut:]
        if len(self._rest) > LINE_BYTES_MAX:
            raise InputError(f"line {self.count + 1} is longer than {LINE_BYTES_MAX} bytes")
        self.count += len(lines)
        return lines

    def end(self) -> list[bytes]:
        """The last line, if the input ends without a delimiter."""
        rest, self._rest = self._rest, b""
        if not rest:
            return []
        lines = rest.split(self._delimiter)
        if not lines[-1]:
            lines.pop()
        self.count += len(lines)
        return lines
