"""What the pipeline raises beside the errors of the connector and of the clients.

Each is one sentence that stands alone and says what to do.
"""

from __future__ import annotations

from millrace.errors import ConfigError, MillraceError


class ImportRefused(MillraceError):
    """Records would land twice, or not at all."""


class DirectoryInUse(ImportRefused):
    """Another import is writing to the directory."""


class LedgerError(MillraceError):
    """The account of a directory is not one, or a step of it is out of order."""


class RecordUnfit(MillraceError):
    """A record cannot be written in the format that was asked for."""


class SchemaFileError(ConfigError):
    """A file that should hold a schema does not, or one that records cannot have."""


class JobFailed(MillraceError):
    """Spark gave up; the sentence is that of the error in its worker, if it has one."""
