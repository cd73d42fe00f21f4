"""What the connector raises beside the errors of the clients.

Spark shows an error of a worker as text, so each one is a sentence that stands alone and says what
to do.
"""

from __future__ import annotations

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
