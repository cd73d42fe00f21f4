"""Values that are JSON objects, parsed to columns by Arrow, many at once.

Owns the promise that each row gets its own value's fields, whatever other values hold. Knows no
records; the caller brings the values of a batch.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from millrace_spark.errors import SchemaError

CORRUPT = "_corrupt_record"
"""The column, if the schema has it, for the text of a value that cannot be parsed; as in Spark."""
_BLOCK_BYTES_MAX = 2**31 - 1
_LISTS = 3
"""In which each value is put, one within another."""
_BEFORE = b'{"v":' + b"[" * _LISTS
_BEHIND = b"]" * _LISTS + b"}\n"
_LEAVING = r"\]\s*" * _LISTS + r",\s*\""
"""What is in a value that closes these lists and goes on with a name."""
_ZERO = r"\x00"
"""As an expression, since that is looked for ten times as fast as a text of one byte."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
"""A string, or what opens or closes."""


def parse_json(values: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, one row for each value.

    A field that a value does not have is null. A value that is null gives nulls, and so does one
    that is no JSON object, or has a field of another type; if the schema has a column `CORRUPT`,
    the text of such a value is there.
    """
    wanted = [field for field in schema if field.name != CORRUPT]
    fields = pa.struct(wanted or [pa.field("", pa.null())])
    parts: list[pa.StructArray] = []
    bad: list[int] = []
    _parse(values, 0, fields, parts, bad)
    objects = pa.concat_arrays(parts) if parts else pa.array([], fields)
    columns = dict(zip(fields.names, objects.flatten(), strict=True))
    if CORRUPT in schema.names:
        texts: list[str | None] = [None] * len(values)
        for index in bad:
            texts[index] = values[index].as_py().decode(errors="replace")
        columns[CORRUPT] = pa.array(texts, pa.string())
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def check_fields(schema: pa.Schema) -> None:
    """Raises `SchemaError` for a type that Arrow does not read from JSON."""
    for field in schema:
        is_text = pa.types.is_string(field.type)
        if field.name == CORRUPT and not is_text:
            raise SchemaError(f"schema: {CORRUPT} is for the text of a value; make it a string")
        if _has_map(field.type) or _parsed(pa.array([b"{}"]), pa.struct([field])) is None:
            raise SchemaError(
                f"schema: {field.name} has a type that is not read from JSON, {field.type}; name "
                "its fields in a struct, or read value as it is and parse it with from_json"
            )


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(index).type) for index in range(kind.num_fields))


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type that is cast to this one: Arrow reads days as numbers only, but times as text."""
    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable(kind.value_type)))
    return kind


def _parse(
    values: pa.BinaryArray,
    first: int,
    fields: pa.StructType,
    parts: list[pa.StructArray],
    bad: list[int],
) -> None:
    """Appends the objects of the values, and which are bad, of which `first` is the first.

    A block with a bad value is halved until the value is alone.
    """
    count = len(values)
    if count == 0:
        return
    objects = _parsed(values, fields)
    if objects is not None:
        parts.append(objects)
    elif count == 1:
        parts.append(pa.nulls(1, fields))
        bad.append(first)
    else:
        middle = count // 2
        _parse(values.slice(0, middle), first, fields, parts, bad)
        _parse(values.slice(middle), first + middle, fields, parts, bad)


def _parsed(values: pa.BinaryArray, fields: pa.StructType) -> pa.StructArray | None:
    r"""The values as objects, or None if one of them is none.

    Arrow's parser reads objects one behind another from a text, wherever they begin and end, so
    that a value of two objects and one of none would shift the rows between them. Therefore the
    text is

        {"v":[[[VALUE]]]}
        {"v":[[[VALUE]]]}

    where `}`, newline, `{` can be neither in a string, which has no control characters, nor
    within an object or a list, for lack of a comma: each line begins and ends outside of all
    objects, and has at least one. So as many objects as lines are one on each. A zero byte would
    end the text, and is in no JSON.

    Within its line a value is the only item of a list, which has no place for a name: so nothing
    can follow it but what closes all three lists, and goes on with a name. Three lists because
    hardly anything does that within itself, and has to be looked at for it.
    """
    lines = pc.binary_join_element_wise(_BEFORE, pc.fill_null(values, b"null"), _BEHIND, b"")
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), b"")
    text = joined[0].as_buffer()
    if text.size >= _BLOCK_BYTES_MAX or pc.match_substring_regex(joined, _ZERO)[0].as_py():
        return None
    if pc.match_substring_regex(joined, _LEAVING)[0].as_py():
        suspects = values.filter(pc.match_substring_regex(values, _LEAVING))
        if not all(_is_closed(value.as_py()) for value in suspects):
            return None
    kind = _readable(fields)
    for _ in range(_LISTS):
        kind = pa.list_(kind)
    try:
        table = arrow_json.read_json(
            pa.BufferReader(text),
            # One block: objects are not looked for where one ends.
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
        objects.validate(full=True)  # strings are UTF-8, which the parser does not look at
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return objects


def _is_closed(value: bytes) -> bool:
    """Whether everything that is closed in it was opened in it."""
    depth = 0
    for token in _TOKEN.finditer(value):
        if token[0] in (b"[", b"{"):
            depth += 1
        elif token[0] in (b"]", b"}"):
            depth -= 1
            if depth < 0:
                return False
    return True
