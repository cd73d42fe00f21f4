"""The table of docs/typed-columns.md, as records and as the rows that are to be read from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "typed-columns.md"
_ROW = re.compile(
    r"\| `(.*)` \| `(.*)` \| (?:`(.*)`|(null)|(corrupt)|(empty text))(, one corrupt)? \|"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table."""

    value: str
    """JSON."""
    kind: str
    """Spark's name of the type."""
    result: str | None
    """As Spark casts it to text."""
    is_corrupt: bool


def cases() -> list[Case]:
    """The rows of the table, in order."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    found = []
    for line in lines:
        row = _ROW.fullmatch(line)
        assert row is not None, f"not a row of the table: {line}"
        value, kind, result, _, corrupt, empty, one_corrupt = row.groups()
        found.append(Case(value, kind, "" if empty else result, bool(corrupt or one_corrupt)))
    return found


def column(kind: str) -> str:
    """The name of the column of a type; each type has one, and each record has one field."""
    return re.sub(r"\W+", "_", kind).strip("_") + "_"


def columns() -> dict[str, str]:
    """Name and type of every column."""
    return {column(case.kind): case.kind for case in cases()}


def records() -> list[bytes]:
    """A record for each case."""
    return [f'{{"{column(case.kind)}": {case.value}}}'.encode() for case in cases()]


def shown(value: Any) -> str | None:
    """A value of Python as Spark casts it to text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return f"[{', '.join(shown(each) or 'null' for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(shown(each) or 'null' for each in value.values())}}}"
    return str(value)
