"""Reading of schema and query files.

Owns the bound on their size, and the error for a missing file. `value_schema` parses schemas.
"""

from __future__ import annotations

from pathlib import Path

from millrace_spark.pipeline.errors import SchemaFileError
from millrace_spark.pipeline.value_schema import parse_schema

FILE_BYTES_MAX = 4 * 1024 * 1024


def read_schema(path: str | None) -> str | None:
    """The schema in a file as Spark's JSON; None for no file. Raises `SchemaFileError`."""
    return None if path is None else parse_schema(read_text(path, option="--schema"))


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
