"""What the connector raises beside the errors of the clients.

Spark shows an error of a worker as text, so each one is a sentence that stands alone and says what
to do. Owns also that this sentence is the first thing in that text.
"""

from __future__ import annotations

from types import TracebackType

from millrace.errors import ConfigError, MillraceError


class OptionError(ConfigError):
    """An option that cannot work; `option` is its name and `reason` what to do about it."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(option, reason)
        self.option = option
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.option}: {self.reason}"


class SchemaError(ConfigError):
    """A schema given by the user that names a column there is not, or gives it another type."""


class DataLost(MillraceError):
    """Records that were asked for, or planned, are not in the log any more."""


class ReadTimedOut(MillraceError):
    """Nothing came within `deadline_ms`; the sentence says what stood in the way."""


class RowRefused(MillraceError):
    """A row that cannot be written as a record; the sentence names the column."""


class JavaNotFound(MillraceError):
    """Spark needs Java, and none was found."""


class sentence_first:  # noqa: N801 - read as a statement: `with sentence_first():`
    """Around what Spark calls: an error of ours is told before any traceback, and not behind.

    Spark passes on what Python prints for an error: its cause, then its traceback, then itself.
    But first it takes the cause away and leaves out its own part of the traceback, unless that
    is all there is. So the traceback ends here, and a copy of the error becomes its cause. An
    error of ours tells all there is to know; of others nothing is taken away.
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
