"""The formats of imported files, and their writers of Arrow batches.

Owns the encodings. Text formats reject a key or value that is not UTF-8, so that no byte is
changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import IO, Any, Protocol

import pyarrow as pa
from pyarrow import compute as pc

from millrace_spark.pipeline.errors import RecordUnfit

FORMATS = ("parquet", "orc", "csv", "json")
TEXT_FORMATS = ("csv", "json")


class Writer(Protocol):
    """Writes tables of one schema to a file."""

    def write_table(self, table: pa.Table) -> None:
        """Appends rows."""

    def close(self) -> None:
        """Writes the end of the content; the file stays open."""


def columns_of(file_format: str, columns: Sequence[str]) -> list[str]:
    """The columns that a format can hold: CSV has no headers."""
    return [name for name in columns if file_format != "csv" or name != "headers"]


def open_writer(file_format: str, file: IO[bytes], schema: pa.Schema) -> Writer:
    """A writer of that format, on an open file."""
    writer: Writer = _WRITERS[file_format](file, schema)
    return writer


def as_text(table: pa.Table) -> pa.Table:
    """The table with text in place of bytes, for text formats. Raises `RecordUnfit`."""
    fields = []
    for field in table.schema:
        if pa.types.is_binary(field.type):
            field = pa.field(field.name, pa.string(), field.nullable)
        fields.append(field)
    try:
        return table.cast(pa.schema(fields))
    except pa.ArrowInvalid:
        raise RecordUnfit(
            "a key or value is not UTF-8 text; use --format parquet, which takes any bytes, with "
            "another directory"
        ) from None


def _parquet(file: IO[bytes], schema: pa.Schema) -> Any:
    from pyarrow import parquet

    # zstd at its fastest: two thirds of snappy's size for about its time.
    return parquet.ParquetWriter(file, schema, compression="zstd", compression_level=1)


def _orc(file: IO[bytes], schema: pa.Schema) -> Any:
    from pyarrow import orc

    return _Orc(orc.ORCWriter(file, compression="zstd"), schema)


def _csv(file: IO[bytes], schema: pa.Schema) -> Any:
    from pyarrow import csv

    return csv.CSVWriter(file, schema)


class _Orc:
    """An ORC file; pyarrow writes the schema with the first table."""

    def __init__(self, writer: Any, schema: pa.Schema) -> None:
        self._writer = writer
        self._writer.write(schema.empty_table())

    def write_table(self, table: pa.Table) -> None:
        self._writer.write(table)

    def close(self) -> None:
        self._writer.close()


class _JsonLines:
    """One object in a line; bytes in headers are text too, and times are ISO 8601."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file = file
        self._encode = json.JSONEncoder(
            default=_json_value, ensure_ascii=False, allow_nan=False
        ).encode

    def write_table(self, table: pa.Table) -> None:
        columns = [_json_column(column).to_pylist() for column in table.columns]
        names = table.column_names
        lines = [
            self._line(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)
        ]
        self._file.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        pass

    def _line(self, row: dict[str, Any]) -> str:
        try:
            return self._encode(row)
        except ValueError:
            return self._encode(_finite(row))


def _finite(value: Any) -> Any:
    """The value with text in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _json_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Much faster than one value at a time.
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
    return column


def _json_value(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise RecordUnfit(
                "a header is not UTF-8 text; use --format parquet, which takes any bytes, with "
                "another directory"
            ) from None
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


_WRITERS: dict[str, Callable[[IO[bytes], pa.Schema], Any]] = {
    "parquet": _parquet,
    "orc": _orc,
    "csv": _csv,
    "json": _JsonLines,
}
