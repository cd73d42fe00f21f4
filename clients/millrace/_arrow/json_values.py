"""Values that are JSON objects, read to typed columns, many at once.

Each row has the fields of its own value, whatever the other values are. A field that its column
cannot hold is null, and is counted; the other fields of the value are not affected. The rules are
those of docs/typed-columns.md: Arrow parses the values, and `json_columns` those that Arrow
refuses. Knows no records; the caller passes the values of a batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from millrace._arrow.json_columns import Cells, Corruption, columns_of, require_readable
from millrace._json_cells import UNFIT, parsed
from millrace.errors import SchemaError

CORRUPT = "_corrupt_record"
"""The column for the text of a value that is no object or has a field that does not fit, if the
schema has it; as in Spark."""
CORRUPT_FIELDS = "_corrupt_fields"
"""The column for the names of the fields that do not fit, if the schema has it."""
_CORRUPT_TYPES = {CORRUPT: pa.string(), CORRUPT_FIELDS: pa.list_(pa.string())}
_BLOCK_BYTES_MAX = 2**31 - 1
_SLICE_ROWS = 512
"""Rows of a slice of a block that Arrow refuses. Arrow parses the slices that it can."""
_LISTS = 3
"""The number of nested lists around each value."""
_BEFORE = b'{"v":' + b"[" * _LISTS
_BEHIND = b"]" * _LISTS + b"}\n"
_CLOSING = r"\]\s*" * _LISTS + r",\s*\""
"""The part of a value that closes these lists and continues with a name."""
_ZERO = r"\x00"
"""A regular expression, because Arrow finds it ten times as fast as a text of one byte."""
_NOT_FINITE = r"[:\[,\s]-?(?:NaN|Inf)"
"""What Arrow takes for a number, and is not JSON."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
"""A string, or an opening or closing bracket."""


@dataclass(frozen=True, slots=True)
class JsonColumns:
    """The columns of a schema, one row for each value, and what did not fit."""

    batch: pa.RecordBatch
    corruption: Corruption


def parse_json(values: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, one row for each value; see `read_json`."""
    return read_json(values, schema).batch


def read_json(values: pa.BinaryArray, schema: pa.Schema) -> JsonColumns:
    """The columns of `schema`, one row for each value, and what did not fit.

    A field that a value lacks is null, and so is one that its column cannot hold. All fields are
    null for a null value, and for a value that is not a JSON object. Such a value, and one with a
    field that does not fit, is corrupt: if the schema has a column `CORRUPT`, it holds the text of
    the value, and `CORRUPT_FIELDS` the names of the fields.
    """
    wanted = [each for each in schema if each.name not in _CORRUPT_TYPES]
    block = _Block(pa.struct(wanted or [pa.field("", pa.null())]))
    block.read(values)
    objects = pa.concat_arrays(block.parts) if block.parts else pa.array([], block.fields)
    columns = dict(zip(block.fields.names, objects.flatten(), strict=True))
    corruption = block.corruption
    if CORRUPT in schema.names:
        texts: list[str | None] = [None] * len(values)
        for row in corruption.rows:
            texts[row] = values[row].as_py().decode(errors="replace")
        columns[CORRUPT] = pa.array(texts, pa.string())
    if CORRUPT_FIELDS in schema.names:
        names: list[list[str] | None] = [None] * len(values)
        for row, fields in corruption.rows.items():
            names[row] = fields
        columns[CORRUPT_FIELDS] = pa.array(names, schema.field(CORRUPT_FIELDS).type)
    batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    return JsonColumns(batch, corruption)


def check_fields(schema: pa.Schema) -> None:
    """Raises `SchemaError` for a type that is not read from JSON."""
    for each in schema:
        if each.name in _CORRUPT_TYPES:
            _check_corrupt(each)
            continue
        try:
            require_readable(each.type)
            is_readable = _parsed(pa.array([b"{}"]), pa.struct([each])) is not None
        except pa.ArrowNotImplementedError:
            is_readable = False
        if not is_readable:
            raise SchemaError(
                f"schema: {each.name} has a type that JSON cannot hold, {each.type}; name "
                "its fields in a struct, or read it as string and parse it with from_json"
            )


def _check_corrupt(each: pa.Field) -> None:
    if each.name == CORRUPT and not pa.types.is_string(each.type):
        raise SchemaError(f"schema: {CORRUPT} holds the text of a value; make it a string")
    if each.name == CORRUPT_FIELDS and not (
        pa.types.is_list(each.type) and pa.types.is_string(each.type.value_type)
    ):
        raise SchemaError(
            f"schema: {CORRUPT_FIELDS} holds names of fields; make it an array of strings"
        )


@dataclass(slots=True)
class _Block:
    """The objects of the values that were read so far, in order."""

    fields: pa.StructType
    parts: list[pa.StructArray] = field(default_factory=list)
    corruption: Corruption = field(default_factory=Corruption)

    def read(self, values: pa.BinaryArray) -> None:
        """Reads all values: at once if Arrow takes them all, and else in slices."""
        if len(values) == 0:
            return
        objects = _parsed(values, self.fields)
        if objects is not None:
            self.parts.append(objects)
            return
        for first in range(0, len(values), _SLICE_ROWS):
            some = values.slice(first, _SLICE_ROWS)
            objects = _parsed(some, self.fields) if len(some) < len(values) else None
            if objects is not None:
                self.parts.append(objects)
            else:
                self._read_each(some, first)

    def _read_each(self, values: pa.BinaryArray, first: int) -> None:
        """Reads values one by one; the first one is of row `first`."""
        rows: list[dict[str, object]] = []
        row_first = first
        for row, value in enumerate(values.to_pylist(), first):
            if value is None:
                rows.append({})
                continue
            try:
                found = parsed(value)
            except ValueError:
                found = UNFIT
            except RecursionError:
                self._append(rows, row_first)
                rows, row_first = [], row + 1
                self._read_deep(values.slice(row - first, 1), row)
                continue
            if isinstance(found, dict):
                rows.append(found)
                continue
            rows.append({})
            if found is not None:
                self.corruption.add_row(row, value.decode(errors="replace"))
        self._append(rows, row_first)

    def _append(self, rows: list[dict[str, object]], first: int) -> None:
        if rows:
            numbers = range(first, first + len(rows))
            self.parts.append(columns_of(self.fields, Cells(rows, numbers), self.corruption))

    def _read_deep(self, value: pa.BinaryArray, row: int) -> None:
        """Reads a value that is nested too deeply for Python; Arrow has no limit, and no rules."""
        objects = _parsed(value, self.fields)
        if objects is None:
            objects = pa.nulls(1, self.fields)
            self.corruption.add_row(row, value[0].as_py().decode(errors="replace"))
        self.parts.append(objects)


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type to parse, which is then cast: Arrow parses times as text, but dates as numbers."""
    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_readable(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable(kind.value_type)))
    return kind


def _parsed(values: pa.BinaryArray, fields: pa.StructType) -> pa.StructArray | None:
    r"""The values as objects, or None if a value is not an object.

    Arrow's parser reads a sequence of objects from a text, wherever they begin and end. So a value
    with two objects and one with none would shift the rows between them. Therefore the text is

        {"v":[[[VALUE]]]}
        {"v":[[[VALUE]]]}

    where `}`, newline, `{` cannot be in a string, which has no control characters, and cannot be
    within an object or a list, because there is no comma. So each line begins and ends outside of
    all objects, and has at least one. As many objects as lines means one object on each line. A
    zero byte would end the text, and no JSON has one.

    Within its line a value is the only item of a list, and a list has no names. So a value can only
    add a name if it closes all three lists first. There are three lists because few values contain
    such a sequence, and those need a second check.
    """
    lines = pc.binary_join_element_wise(_BEFORE, pc.fill_null(values, b"null"), _BEHIND, b"")
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), b"")
    text = joined[0].as_buffer()
    if text.size >= _BLOCK_BYTES_MAX or pc.match_substring_regex(joined, _ZERO)[0].as_py():
        return None
    if _has_not_finite(joined):
        return None
    if pc.match_substring_regex(joined, _CLOSING)[0].as_py():
        suspects = values.filter(pc.match_substring_regex(values, _CLOSING))
        if not all(_is_closed(value.as_py()) for value in suspects):
            return None
    kind = _readable(fields)
    for _ in range(_LISTS):
        kind = pa.list_(kind)
    try:
        table = arrow_json.read_json(
            pa.BufferReader(text),
            # One block, so that no block ends within an object.
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema([pa.field("v", kind)]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(values):
            return None
        objects = table.column("v").combine_chunks()
        for _ in range(_LISTS):
            if not pc.all(pc.equal(pc.fill_null(pc.list_value_length(objects), 0), 1)).as_py():
                return None
            objects = objects.flatten()
        objects = objects.cast(fields) if objects.type != fields else objects
        objects.validate(full=True)  # strings must be UTF-8, which the parser does not check
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return objects


def _has_not_finite(joined: pa.BinaryArray) -> bool:
    """Whether there is a NaN or an infinity that is not within a text, or seems to be."""
    # For several words at once, Arrow takes fifty times as long as for one.
    if not any(pc.match_substring_regex(joined, word)[0].as_py() for word in ("NaN", "Inf")):
        return False
    return bool(pc.match_substring_regex(joined, _NOT_FINITE)[0].as_py())


def _is_closed(value: bytes) -> bool:
    """Whether every bracket that it closes was opened in it."""
    depth = 0
    for token in _TOKEN.finditer(value):
        if token[0] in (b"[", b"{"):
            depth += 1
        elif token[0] in (b"]", b"}"):
            depth -= 1
            if depth < 0:
                return False
    return True
