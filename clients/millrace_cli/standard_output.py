"""Stdout: everything that a command prints goes through here, whole or with an error.

Owns the descriptor of stdout. Three things make a plain write lose bytes: a non-blocking stdout, a
write that a stop or a signal cuts short, and Python's unbuffered mode, in which `sys.stdout` drops
the count of a short write. `install` puts a stream in place of `sys.stdout` that has none of them.
`record_output` writes through the same stream from an event loop.

The flags of the descriptor stay as they are, because other processes share them.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any


class WholeWrites(io.RawIOBase):
    """A descriptor whose `write` returns when every byte is written, or raises `OSError`.

    >>> read_end, write_end = os.pipe()
    >>> WholeWrites(write_end).write(b"whole"), os.read(read_end, 99)
    (5, b'whole')
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        done = 0
        while done < len(view):
            try:
                done += os.write(self._descriptor, view[done:])
            except BlockingIOError:
                self._wait()
        return done

    def _wait(self) -> None:
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        ready.poll()


def install() -> None:
    """Puts a stream of `WholeWrites` in place of this process's `sys.stdout`.

    A stdout that was closed at the start gets a descriptor that refuses writes: its number must not
    go to a socket, and a command must not report success for output that went nowhere.
    """
    before: Any = sys.stdout
    if before is None:
        raw, by_line = WholeWrites(os.open(os.devnull, os.O_RDONLY)), False
    else:
        before.flush()
        raw = WholeWrites(before.fileno())
        # On a terminal, and in Python's unbuffered mode.
        by_line = before.line_buffering or before.write_through
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=by_line,
    )


def drop_output() -> None:
    """Discards what is printed from now on, after an error of stdout.

    The interpreter flushes stdout at its end, and would report the same error again.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
