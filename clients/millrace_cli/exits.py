"""Exit codes: their meanings, and the code of each error.

Owns the codes of every command, and the one line on stderr for each. The broker process uses some
of them (`serve`). Codes above 64 are those of sysexits.h and of a shell.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from enum import IntEnum
from typing import Any, NoReturn

import typer


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
    Exit.REFUSED: "the broker rejected it; dissect: malformed bytes; demo: a comparison failed",
    Exit.USAGE: "a flag, argument or setting is wrong",
    Exit.LOCKED: "serve: another process uses the data directory",
    Exit.LISTEN: "serve: the broker cannot listen on the address",
    Exit.DISK: "the broker's data, or the output, cannot be read or written",
    Exit.INPUT: "the input is not in the given format",
    Exit.UNAVAILABLE: "no broker answers",
    Exit.INTERRUPTED: "interrupted by ^C",
    Exit.PIPE_CLOSED: "the reader of the output closed the pipe",
}
# \b keeps click from joining the lines.
EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code:>3}  {meaning}" for code, meaning in _MEANINGS.items()
)


class InputError(Exception):
    """The input of a command is not in the given format."""


class CommandError(Exception):
    """A command cannot do its work; the message tells the user why."""


def run(work: Coroutine[Any, Any, Exit]) -> NoReturn:
    """Runs a client command on an event loop and ends it with the exit code of its outcome."""

    def on_loop() -> Exit:
        import asyncio

        from millrace._sync.loops import loop_factory

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(work)

    run_blocking(on_loop)


def run_blocking(work: Callable[[], Exit]) -> NoReturn:
    """Runs a command that has no event loop and ends it with the exit code of its outcome."""
    raise typer.Exit(_outcome(work))


def ended(code: Exit, reason: object) -> Exit:
    """Prints the reason of an exit code to stderr, in one line."""
    print(f"millrace: {' '.join(str(reason).split())}", file=sys.stderr, flush=True)
    return code


def output_closed() -> Exit:
    """Ends silently after `BrokenPipeError`: the reader, such as `head`, closed the pipe."""
    _drop_output()
    return Exit.PIPE_CLOSED


def output_failed(error: OSError) -> Exit:
    """Reports an error of the output, or of another file."""
    _drop_output()
    return ended(Exit.DISK, error)


def _drop_output() -> None:
    # The interpreter flushes stdout at its end, and would report the same error again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _outcome(work: Callable[[], Exit]) -> Exit:
    from millrace import errors

    try:
        code = work()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return output_closed()
    except errors.ConfigError as error:
        return ended(Exit.USAGE, error)
    except InputError as error:
        return ended(Exit.INPUT, error)
    except (
        errors.ConnectionFailed,
        errors.ConnectionLost,
        errors.RequestTimedOut,
        errors.DeliveryTimeout,
        errors.BrokerStopping,
    ) as error:
        return ended(Exit.UNAVAILABLE, error)
    except (errors.MillraceError, CommandError) as error:
        return ended(Exit.REFUSED, error)
    except OSError as error:
        return output_failed(error)
