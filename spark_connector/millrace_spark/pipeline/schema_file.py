"""Reading of schemas, which may be in a file, and of query files.

Owns the bound on their size, and the error for a missing file. `value_schema` parses schemas.
"""

from __future__ import annotations

from pathlib import Path

from millrace_spark.pipeline.errors import SchemaFileError
from millrace_spark.pipeline.value_schema import parse_schema

FILE_BYTES_MAX = 4 * 1024 * 1024


def read_schema(given: str | None) -> str | None:
    """The schema in a file, or in the text itself, as Spark's JSON; None for none.

    A text with a space, or of JSON, is a schema unless a file has that name. Raises
    `SchemaFileError`.
    """
    if given is None:
        return None
    is_text = any(mark in given for mark in (" ", "\n", "{"))
    if is_text and not _is_file(given):
        return parse_schema(given)
    return parse_schema(read_text(given, option="--schema"))


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long for a name
        return False


def read_text(path: str, *, option: str) -> str:
    """The text of a file. Raises `SchemaFileError`."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise SchemaFileError(f"{option} {path}: the file has more than {FILE_BYTES_MAX} bytes")
        return data.decode()
    except OSError as error:
        raise SchemaFileError(f"{option} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaFileError(f"{option} {path}: the file is not UTF-8 text") from None
