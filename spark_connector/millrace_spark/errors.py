"""The errors of the connector, beside those of the clients.

Spark shows an error of a worker as text. So each message is complete and tells the user what to do,
and `message_first` puts it at the beginning of that text.
"""

from __future__ import annotations

from types import TracebackType

from millrace.errors import ConfigError, MillraceError


class OptionError(ConfigError):
    """A wrong option; `option` is its name, and `reason` tells what to do."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(option, reason)
        self.option = option
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.option}: {self.reason}"


class DataLost(MillraceError):
    """Requested or planned records are no longer in the log."""


class ReadTimedOut(MillraceError):
    """No records within `deadline_ms`; the message has the last error."""


class RowRefused(MillraceError):
    """A row that cannot be written as a record; the message names the column."""


class JavaNotFound(MillraceError):
    """There is no Java, which Spark needs."""


class message_first:  # noqa: N801 - read as a statement: `with message_first():`
    """Wraps an entry point, so that Spark shows a `MillraceError` before its traceback.

    Spark shows the text that Python prints for an error: its cause, its traceback, its message.
    Before, Spark removes the cause and its own frames, unless no other frames are left. So this
    removes the traceback and sets a copy of the error as its cause. Other errors keep their
    tracebacks.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, MillraceError):
            copy = type(error).__new__(type(error), *error.args)
            copy.__dict__.update(error.__dict__)
            error.__cause__ = copy
            error.__traceback__ = None
