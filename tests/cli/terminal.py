"""A terminal with a command in it: what a user sees, and types.

Owns the pseudo-terminal and its screen, which `pyte` draws. Colours are left out.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import pyte

from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace

_SIZE = ("COLUMNS", "LINES")
"""Variables that a program would believe instead of the terminal."""


class Terminal:
    """One command on a screen of `columns` and `rows` cells."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int, size: tuple[int, int]):
        self._process = process
        self._descriptor = descriptor
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)

    @classmethod
    @contextmanager
    def running(
        cls, millrace: Millrace, *arguments: str, columns: int = 80, rows: int = 50
    ) -> Iterator[Self]:
        """`millrace ARGUMENTS` on a terminal, killed on leaving."""
        environment = {"MILLRACE_SERVERS": millrace.servers, **millrace.environment}
        command = [*COMMAND, *arguments]
        with cls.of(command, environment, columns=columns, rows=rows) as terminal:
            yield terminal

    @classmethod
    @contextmanager
    def of(
        cls, command: Sequence[str], environment: Mapping[str, str], *, columns: int, rows: int
    ) -> Iterator[Self]:
        """A command on a terminal, killed on leaving."""
        ours, theirs = pty.openpty()
        modes = termios.tcgetattr(theirs)
        # No echo: a line that is typed would be on the screen.
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in _SIZE}
        process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**inherited, "TERM": "xterm-256color", **environment},
        )
        os.close(theirs)
        try:
            yield cls(process, ours, (columns, rows))
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    def type(self, keys: bytes) -> None:
        """Types."""
        os.write(self._descriptor, keys)

    def wait_for(self, text: str) -> None:
        """Returns when the screen has the text."""
        deadline = time.monotonic() + HANG_TIMEOUT_S
        while text not in self.text():
            assert self._read(deadline), f"the command ended without {text!r}:\n{self.text()}"

    def wait(self) -> int:
        """Waits for the end of the command; returns its exit code."""
        deadline = time.monotonic() + HANG_TIMEOUT_S
        while self._read(deadline):
            pass
        return self._process.wait(timeout=HANG_TIMEOUT_S)

    def text(self) -> str:
        """The lines of the screen, without the space at their ends and below them."""
        lines = [line.rstrip() for line in self._screen.display]
        return "\n".join(lines).rstrip("\n") + "\n"

    def _read(self, deadline: float) -> bool:
        """Draws what the command writes next; false after its end."""
        left = max(deadline - time.monotonic(), 0)
        assert select.select([self._descriptor], [], [], left)[0], f"it hangs:\n{self.text()}"
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            # Linux: the other end is closed.
            return False
        self._stream.feed(data)
        return bool(data)
