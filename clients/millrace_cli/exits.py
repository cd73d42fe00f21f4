"""Exit codes: their meanings, and the code of each error.

Owns the codes of every command, and the one line on stderr for each. The broker process uses some
of them (`serve`). Codes above 64 are those of sysexits.h and of a shell.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from enum import IntEnum
from typing import Any, NoReturn

import typer

from millrace_cli.standard_output import drop_output
from millrace_cli.visible_text import visible


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
    HUNG_UP = 129
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


_MEANINGS = {
    Exit.OK: "done",
    Exit.REFUSED: "the broker rejected it; dissect: malformed bytes; demo, simulate, status: "
    "a check failed",
    Exit.USAGE: "a flag, argument or setting is wrong",
    Exit.LOCKED: "serve: another process uses the data directory",
    Exit.LISTEN: "serve, console: it cannot listen on the address",
    Exit.DISK: "the broker's data, or the output, cannot be read or written",
    Exit.INPUT: "the input is not in the given format",
    Exit.UNAVAILABLE: "no broker answers; serve: the cluster's quorum does not answer",
    Exit.HUNG_UP: "the terminal was closed (SIGHUP)",
    Exit.INTERRUPTED: "interrupted by ^C (SIGINT)",
    Exit.PIPE_CLOSED: "the reader of the output closed the pipe",
    Exit.TERMINATED: "terminated (SIGTERM)",
}
_SIGNALS = {
    signal.SIGHUP: Exit.HUNG_UP,
    signal.SIGINT: Exit.INTERRUPTED,
    signal.SIGTERM: Exit.TERMINATED,
}
# \b keeps click from joining the lines.
EXIT_CODES = "\b\nExit codes:\n" + "\n".join(
    f"  {code:>3}  {meaning}" for code, meaning in _MEANINGS.items()
)


class InputError(Exception):
    """The input of a command is not in the given format."""


class CommandError(Exception):
    """A command cannot do its work; the message tells the user why."""


class BrokerUnavailable(Exception):
    """No broker has answered for as long as the command waits."""


def run(work: Coroutine[Any, Any, Exit]) -> NoReturn:
    """Runs a client command on an event loop and ends it with the exit code of its outcome."""
    raise typer.Exit(outcome(work))


def outcome(work: Coroutine[Any, Any, Exit]) -> Exit:
    """Runs a part of a client command on an event loop; returns the exit code of its outcome.

    A signal cancels the work once, and so does each signal after it: the first asks for an orderly
    end, the second for the end of that.
    """

    def on_loop() -> Exit:
        import asyncio

        from millrace._sync.loops import loop_factory

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_until_signal(work))

    return _outcome(on_loop)


def run_blocking(work: Callable[[], Exit]) -> NoReturn:
    """Runs a command that has no event loop and ends it with the exit code of its outcome."""
    raise typer.Exit(_outcome(work))


def until_signal(work: Callable[[Callable[[], None]], Exit]) -> Exit:
    """Runs blocking work that SIGTERM and SIGHUP end as ^C does, so that it can clean up.

    The work is given a function that raises `KeyboardInterrupt` if a signal has come. Work that
    repeats calls it each time: Python drops an exception that is raised in a destructor or in a
    callback of a library, and a signal may come just there.
    """
    received: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    def check() -> None:
        if received:
            raise KeyboardInterrupt

    before = {
        number: signal.signal(number, on_signal)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        return work(check)
    except KeyboardInterrupt:
        if not received:
            raise
        return _SIGNALS[signal.Signals(received[0])]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def confirm(question: Callable[[], str], check: Coroutine[Any, Any, Exit]) -> None:
    """Asks the user on stderr, if the check succeeds; an empty question is not asked.

    There is nothing to ask about what is not there.
    """
    code = outcome(check)
    if code is not Exit.OK:
        raise typer.Exit(code)
    if text := question():
        typer.confirm(visible(text), abort=True, err=True)


def ended(code: Exit, reason: object) -> Exit:
    """Prints the reason of an exit code to stderr, in one line."""
    tell(reason)
    return code


def refused(errors: Iterable[object]) -> Exit:
    """Prints each error in a line; the exit code is 0 if there is none."""
    return max((ended(Exit.REFUSED, error) for error in errors), default=Exit.OK)


def unanswered(brokers: Iterable[tuple[int, str | None]]) -> Exit:
    """Prints each broker that has an error; the exit code is 0 if there is none."""
    failed = [
        ended(Exit.UNAVAILABLE, f"broker {node_id}: {error}") for node_id, error in brokers if error
    ]
    return max(failed, default=Exit.OK)


def tell(what: object) -> None:
    """Prints one line to stderr. A name in it cannot send control sequences to a terminal."""
    line = visible(" ".join(str(what).split()))
    print(f"millrace: {line}", file=sys.stderr, flush=True)


def output_closed() -> Exit:
    """Ends silently after `BrokenPipeError`: the reader, such as `head`, closed the pipe."""
    drop_output()
    return Exit.PIPE_CLOSED


def output_failed(error: OSError) -> Exit:
    """Reports an error of the output, or of another file."""
    drop_output()
    return ended(Exit.DISK, error)


async def _until_signal(work: Coroutine[Any, Any, Exit]) -> Exit:
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    received: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    for number in _SIGNALS:
        # A job in the background of a script, or below nohup, ignores signals of the terminal.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal, number)
    try:
        return await work
    except asyncio.CancelledError:
        if not received:
            raise
        return _SIGNALS[received[0]]


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
        BrokerUnavailable,
    ) as error:
        return ended(Exit.UNAVAILABLE, error)
    except (errors.MillraceError, CommandError) as error:
        return Exit.INTERRUPTED if _is_of_interrupt(error) else ended(Exit.REFUSED, error)
    except OSError as error:
        return output_failed(error)


def _is_of_interrupt(error: BaseException) -> bool:
    """Whether the error came while ^C ended a call: PySpark then calls Java again, in vain."""
    context: BaseException | None = error
    while context is not None and not isinstance(context, KeyboardInterrupt):
        context = context.__context__
    return context is not None
