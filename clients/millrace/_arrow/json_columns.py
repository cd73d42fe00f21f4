"""Columns of Arrow from values of JSON, a cell at a time, where a cell that does not fit is null.

Owns which conversion of `_json_cells` belongs to which Arrow type, and the record of what did not
fit. About ten times as slow as Arrow's own parser, which takes a block of values or refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from millrace import _json_cells
from millrace._json_cells import UNFIT, Conversion

EXAMPLE_CHARS_MAX = 40
_US_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


class Cells(NamedTuple):
    """Values of JSON, and the row of each."""

    values: Sequence[Any]
    rows: Sequence[int]


class Example(NamedTuple):
    """How many cells of a field did not fit, and the first of them."""

    times: int
    row: int
    text: str
    """The beginning of the cell's text."""


@dataclass(slots=True)
class Corruption:
    """What did not fit, of the values of a batch; rows count from 0."""

    rows: dict[int, list[str]] = field(default_factory=dict)
    """The corrupt rows, and the fields of each that do not fit; none if it is no object."""
    fields: dict[str, Example] = field(default_factory=dict)
    """By the name of the field, as `place.city` or `tags[]`; empty for values that are no object"""

    @property
    def field_count(self) -> int:
        """Cells that did not fit."""
        return sum(each.times for name, each in self.fields.items() if name)

    def add_row(self, row: int, text: str) -> None:
        """Adds a value that is no object."""
        self.rows[row] = []
        self._add("", row, text)

    def add_field(self, name: str, row: int, cell: Any) -> None:
        """Adds a cell that its column cannot hold."""
        names = self.rows.setdefault(row, [])
        if name not in names:
            names.append(name)
        self._add(name, row, _shown(cell))

    def _add(self, name: str, row: int, text: str) -> None:
        found = self.fields.get(name)
        if found is None:
            self.fields[name] = Example(1, row, text[:EXAMPLE_CHARS_MAX])
        else:
            self.fields[name] = found._replace(times=found.times + 1)


def _shown(cell: Any) -> str:
    if cell is UNFIT:
        return "NaN"
    found = _json_cells.text(cell)
    return type(cell).__name__ if found is UNFIT else str(found)


def require_readable(kind: pa.DataType) -> None:
    """Raises `pa.ArrowNotImplementedError` for a type that has no conversion."""
    if pa.types.is_struct(kind):
        for each in kind:
            require_readable(each.type)
    elif _is_list(kind):
        require_readable(kind.value_type)
    else:
        _leaf(kind)


def columns_of(kind: pa.StructType, objects: Cells, corruption: Corruption) -> pa.StructArray:
    """Objects as a column; the fields that do not fit are null, and go into `corruption`."""
    found: pa.StructArray = _struct(kind, "", objects, corruption)
    return found


def _column(kind: pa.DataType, name: str, cells: Cells, corruption: Corruption) -> pa.Array:
    if pa.types.is_struct(kind):
        return _struct(kind, name, _only(dict, name, cells, corruption), corruption)
    if _is_list(kind):
        return _list(kind, name, _only(list, name, cells, corruption), corruption)
    conversion, to_array = _leaf(kind)
    values = [None if each is None else conversion(each) for each in cells.values]
    if UNFIT in values:
        for index, value in enumerate(values):
            if value is UNFIT:
                corruption.add_field(name, cells.rows[index], cells.values[index])
                values[index] = None
    return to_array(values)


def _only(kind: type, name: str, cells: Cells, corruption: Corruption) -> Cells:
    """The cells of one kind; each other one becomes null."""
    values = list(cells.values)
    for index, each in enumerate(values):
        if each is not None and not isinstance(each, kind):
            corruption.add_field(name, cells.rows[index], each)
            values[index] = None
    return Cells(values, cells.rows)


def _struct(kind: pa.StructType, name: str, cells: Cells, corruption: Corruption) -> pa.StructArray:
    prefix = f"{name}." if name else ""
    columns = [
        _column(
            each.type,
            prefix + each.name,
            Cells(
                [None if value is None else value.get(each.name) for value in cells.values],
                cells.rows,
            ),
            corruption,
        )
        for each in kind
    ]
    is_null = pa.array([value is None for value in cells.values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=is_null)


def _list(kind: pa.DataType, name: str, cells: Cells, corruption: Corruption) -> pa.Array:
    offsets: list[int | None] = []
    items: list[Any] = []
    rows: list[int] = []
    for value, row in zip(cells.values, cells.rows, strict=True):
        offsets.append(None if value is None else len(items))
        items.extend(value or ())
        rows.extend([row] * len(value or ()))
    offsets.append(len(items))
    found = _column(kind.value_type, f"{name}[]", Cells(items, rows), corruption)
    array = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    at = pa.array(offsets, pa.int64() if pa.types.is_large_list(kind) else pa.int32())
    return array.from_arrays(at, found, type=kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _leaf(kind: pa.DataType) -> tuple[Conversion, Callable[[list[Any]], pa.Array]]:
    """The conversion of a cell, and how converted cells become a column."""
    plain = partial(pa.array, type=kind)
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return _json_cells.text, plain
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _json_cells.utf8, plain
    if types.is_boolean(kind):
        return _json_cells.boolean, plain
    if types.is_integer(kind):
        signed = types.is_signed_integer(kind)
        return _json_cells.integer(kind.bit_width, is_signed=signed), plain
    if types.is_floating(kind):
        # Arrow reads the text itself, as it does within JSON, so that it is rounded once.
        return _json_cells.floating, lambda cells: pa.array(cells, pa.string()).cast(kind)
    if types.is_decimal(kind):
        return _json_cells.decimal(kind.precision, kind.scale), plain
    if types.is_date32(kind):
        return _json_cells.date_days, lambda cells: pa.array(cells, pa.int32()).cast(kind)
    if types.is_timestamp(kind) and kind.unit in _US_PER_UNIT:
        conversion = partial(_moment, _US_PER_UNIT[kind.unit])
        return conversion, lambda cells: pa.array(cells, pa.int64()).cast(kind)
    if types.is_null(kind):
        return lambda _: None, plain
    raise pa.ArrowNotImplementedError(f"{kind} is not read from JSON")


def _moment(us_per_unit: int, cell: Any) -> Any:
    found = _json_cells.timestamp_us(cell)
    return found if found is UNFIT else found // us_per_unit
