"""A result as a table, CSV, JSON lines or Parquet.

Owns the text of a cell. Bytes are text: other bytes than UTF-8 are `\\xHH`, and in JSON
`{"base64": ...}`, as `millrace consume` writes them. Times are ISO 8601 in UTC.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import IO, Any, Literal

import pyarrow as pa

from millrace.errors import ConfigError
from millrace_cli.exits import CommandError
from millrace_cli.sql.rows import Rows
from millrace_cli.visible_text import visible

ResultFormat = Literal["table", "csv", "json", "parquet"]


def write(rows: Rows, format_: ResultFormat, out: IO[bytes], *, for_terminal: bool = False) -> None:
    """Writes a result in a format other than `table`, while it is computed.

    For a terminal, characters that could control it are escapes.
    """
    if format_ == "parquet":
        _write_parquet(rows, out)
        return
    pieces = _csv(rows) if format_ == "csv" else _json_lines(rows)
    for piece in pieces:
        if for_terminal:
            piece = visible(piece, keep="\n", json=format_ == "json")
        out.write(piece.encode(errors="backslashreplace"))


def text_rows(rows: Rows) -> Iterator[Sequence[str | None]]:
    """The cells as text, row by row; None is null."""
    for batch in rows.batches:
        yield from zip(*([_text(cell) for cell in each.to_pylist()] for each in batch), strict=True)


def numeric(schema: pa.Schema) -> list[bool]:
    """Which columns have numbers."""
    kinds = pa.types
    return [
        kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)
        for kind in schema.types
    ]


def _csv(rows: Rows) -> Iterator[str]:
    """A line of names, then a line for each row; null is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows.schema.names)
    for batch in rows.batches:
        writer.writerows(text_rows(Rows(rows.schema, iter([batch]))))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _json_lines(rows: Rows) -> Iterator[str]:
    _check_names(rows.schema)
    names = rows.schema.names
    for batch in rows.batches:
        cells = ([_json(cell) for cell in each.to_pylist()] for each in batch)
        lines = (dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True))
        yield "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _write_parquet(rows: Rows, out: IO[bytes]) -> None:
    from pyarrow import parquet

    _check_names(rows.schema)
    try:
        with parquet.ParquetWriter(out, rows.schema) as writer:
            for batch in rows.batches:
                writer.write_batch(batch)
    except pa.ArrowNotImplementedError as error:
        raise CommandError(f"Parquet cannot hold a column of the result: {error}") from None


def _check_names(schema: pa.Schema) -> None:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise ConfigError(f"the query: two columns are called {name}; name one with AS")


def _text(cell: Any) -> str | None:
    match cell:
        case None | str():
            return cell
        case bool():
            return "true" if cell else "false"
        case bytes():
            return cell.decode(errors="backslashreplace")
        case dict() | list():
            return json.dumps(_json(cell), ensure_ascii=False)
        case datetime() | date() | time():
            return _iso(cell)
        case Decimal():
            return f"{cell:f}"
    return str(cell)


def _json(cell: Any) -> Any:
    match cell:
        case None | bool() | int() | str():
            return cell
        case float():
            return cell if math.isfinite(cell) else None
        case Decimal():
            return int(cell) if cell == cell.to_integral_value() else float(cell)
        case bytes():
            try:
                return cell.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(cell).decode()}
        case dict():
            return {str(name): _json(each) for name, each in cell.items()}
        case list():
            return [_json(each) for each in cell]
        case tuple() if not hasattr(cell, "nanoseconds"):
            return [_json(each) for each in cell]
    return _text(cell)


def _iso(cell: date | time) -> str:
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        return cell.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return cell.isoformat()
