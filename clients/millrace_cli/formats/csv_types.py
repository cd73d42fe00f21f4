"""The types of the columns of a CSV, and its rows as JSON objects with values of these types.

Owns what a cell becomes: a number, true or false, text, or null. The rules are those of
docs/typed-columns.md, so that a reader of the topic with the same types finds the same values. A
cell that does not fit its type is sent as text, which such a reader counts as corrupt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millrace import _json_cells
from millrace._json_cells import UNFIT, Conversion
from millrace.errors import ConfigError
from millrace_cli.formats.input_notes import InputNotes

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_LONG = _json_cells.integer(64)
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def parse_types(text: str) -> dict[str, str]:
    """The type of each column in `name type, name type`. Raises `ConfigError`.

    >>> parse_types("temp double, year int")
    {'temp': 'double', 'year': 'integer'}
    """
    from millrace_spark.pipeline.value_schema import field_types, parse_schema

    types = field_types(parse_schema(text, option="--types"))
    for name, kind in types.items():
        if not isinstance(kind, str):
            raise ConfigError(f"--types: {name} is {kind['type']}, and a cell of CSV has one value")
    return types


@dataclass(slots=True)
class ColumnTypes:
    """The types of the columns of all inputs; a column without one is text."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    null_texts: frozenset[str] = frozenset()
    """Cells that are null. In a column with a type, other than text, an empty one is null too."""

    @property
    def are_plain(self) -> bool:
        """Whether every cell is text."""
        return not self.kinds and not self.null_texts

    def require_columns(self, header: Sequence[str]) -> str | None:
        """What is wrong with a header: a column of `kinds` that it does not have."""
        missing = [name for name in self.kinds if name not in header]
        return f"has no column {missing[0]!r}, which --types names" if missing else None

    def encoder(
        self, header: Sequence[str], notes: InputNotes, input_name: str
    ) -> Callable[[int, Sequence[str]], str]:
        """A function from the number of a line and its cells to the JSON object of the row."""
        columns = [
            (f"{json.dumps(name, ensure_ascii=False)}: ", self._cell(name, notes, input_name))
            for name in header
        ]

        def encode(number: int, row: Sequence[str]) -> str:
            cells = zip(columns, row, strict=True)
            return "{" + ", ".join(name + cell(number, text) for (name, cell), text in cells) + "}"

        return encode

    def _cell(self, name: str, notes: InputNotes, input_name: str) -> Callable[[int, str], str]:
        kind = self.kinds.get(name, "string")
        null_texts = self.null_texts if kind == "string" else self.null_texts | {""}
        if kind == "string":
            return lambda _, text: "null" if text in null_texts else _json_text(text)
        conversion = conversion_of(kind)
        literal = _LITERALS.get(kind.partition("(")[0], _json_text)

        def cell(number: int, text: str) -> str:
            if text in null_texts:
                return "null"
            if conversion(text) is not UNFIT:
                return literal(text)
            notes.add(f"{name} does not fit {kind}, and is sent as text", input_name, number, text)
            return _json_text(text)

        return cell


def conversion_of(kind: str) -> Conversion:
    """The conversion of a cell to a type of Spark's JSON."""
    if kind in _INTEGER_BITS:
        return _json_cells.integer(_INTEGER_BITS[kind])
    found = _DECIMAL.fullmatch(kind)
    if found is not None:
        return _json_cells.decimal(int(found[1]), int(found[2]))
    return _CONVERSIONS[kind]


_CONVERSIONS: dict[str, Conversion] = {
    "string": _json_cells.text,
    "boolean": _json_cells.boolean,
    "float": _json_cells.floating,
    "double": _json_cells.floating,
    "date": _json_cells.date_days,
    "timestamp": _json_cells.timestamp_us,
}


_json_text: Callable[[str], str] = json.encoder.encode_basestring
"""What `json.dumps` does with text, without its own cost."""


def _json_number(text: str) -> str:
    """A number as JSON writes it; NaN and infinity, which JSON does not have, are text."""
    found = _json_cells.number(text)
    return _json_text(text) if found is UNFIT else str(found)


_LITERALS: dict[str, Callable[[str], str]] = {
    **dict.fromkeys((*_INTEGER_BITS, "float", "double", "decimal"), _json_number),
    "boolean": str.lower,
}


class Inference:
    """Finds the narrowest type that fits every cell of a column, over any number of rows.

    A number with leading zeros, a sign or spaces is text, because it may be a code.
    """

    def __init__(self, null_texts: Iterable[str]) -> None:
        self._null_texts = {"", *null_texts}
        self._left: dict[str, list[str]] = {}
        self._seen: set[str] = set()

    def add(self, header: Sequence[str], row: Sequence[str]) -> None:
        """Takes a row into account."""
        for name, text in zip(header, row, strict=True):
            left = self._left.setdefault(name, list(_NARROW))
            if text in self._null_texts or not left:
                continue
            self._seen.add(name)
            left[:] = [kind for kind in left if _NARROW[kind](text)]

    def kinds(self) -> dict[str, str]:
        """The type of each column; text for one without a cell."""
        return {
            name: left[0] if left and name in self._seen else "string"
            for name, left in self._left.items()
        }


def _is_long(text: str) -> bool:
    return text.lstrip("-").isdecimal() and _is_number(text) and _LONG(text) is not UNFIT


def _is_number(text: str) -> bool:
    return _JSON_NUMBER.fullmatch(text) is not None


def _is_date(text: str) -> bool:
    return _DAY.fullmatch(text) is not None and _json_cells.date_days(text) is not UNFIT


_NARROW: dict[str, Callable[[str], Any]] = {
    "boolean": lambda text: _json_cells.boolean(text) is not UNFIT,
    "long": _is_long,
    "double": _is_number,
    "date": _is_date,
    "timestamp": lambda text: _json_cells.timestamp_us(text) is not UNFIT,
}
"""Which cells a type fits; of two that fit, the first one is narrower."""
