"""The errors of the pipeline, beside those of the connector and of the clients.

Each message is complete and tells the user what to do.
"""

from __future__ import annotations

from millrace.errors import ConfigError, MillraceError


class ImportRefused(MillraceError):
    """Records would be imported twice, or left out."""


class DirectoryInUse(ImportRefused):
    """Another import is writing to the directory."""


class LedgerError(MillraceError):
    """The ledger of a directory is damaged, or a step is out of order."""


class RecordUnfit(MillraceError):
    """A record cannot be written in the requested format."""


class TooManyCorrupt(MillraceError):
    """More records than allowed have values that their columns cannot hold."""


class SchemaFileError(ConfigError):
    """A schema file cannot be read, or its schema is not possible for records."""


class QueryRefused(ConfigError):
    """Spark cannot plan a query; the message is Spark's, with the place in the text."""


class JobFailed(MillraceError):
    """The Spark job failed; the message is that of the worker's error, if there is one."""
