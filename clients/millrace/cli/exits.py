"""Exit codes: what each means, and which error leads to which.

Owns the numbers of every command. The broker process has a part of them (`serve`), the numbers
above 64 are those of sysexits.h and of a shell.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command ends."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    LOCKED = 3
    LISTEN = 4
    DISK = 5
    INPUT = 65
    UNAVAILABLE = 69
    INTERRUPTED = 130
    PIPE_CLOSED = 141


_MEANINGS = {
    Exit.OK: "done",
    Exit.REFUSED: "the broker refused it; dissect: malformed bytes; demo: figures differ",
    Exit.USAGE: "a flag, argument or setting is wrong",
    Exit.LOCKED: "serve: another process has the data directory",
    Exit.LISTEN: "serve: the address cannot be listened on",
    Exit.DISK: "serve: the data cannot be read or written",
    Exit.INPUT: "the input is not in the format it should have",
    Exit.UNAVAILABLE: "no broker answers",
    Exit.INTERRUPTED: "interrupted by ^C",
    Exit.PIPE_CLOSED: "whoever read the output went away",
}
# \b keeps click from joining the lines.
EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code:>3}  {meaning}" for code, meaning in _MEANINGS.items()
)
