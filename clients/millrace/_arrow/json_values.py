"""Values that are JSON objects, parsed to columns by Arrow, many at once.

Guarantees that each row has the fields of its own value, whatever the other values are. Knows no
records; the caller passes the values of a batch.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from millrace.errors import SchemaError

CORRUPT = "_corrupt_record"
"""The column for the text of a value that cannot be parsed, if the schema has it; as in Spark."""
_BLOCK_BYTES_MAX = 2**31 - 1
_LISTS = 3
"""The number of nested lists around each value."""
_BEFORE = b'{"v":' + b"[" * _LISTS
_BEHIND = b"]" * _LISTS + b"}\n"
_CLOSING = r"\]\s*" * _LISTS + r",\s*\""
"""The part of a value that closes these lists and continues with a name."""
_ZERO = r"\x00"
"""A regular expression, because Arrow finds it ten times as fast as a text of one byte."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
"""A string, or an opening or closing bracket."""


def parse_json(values: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema`, one row for each value.

    A field that a value lacks is null. All fields are null for a null value, for a value that is
    not a JSON object, and for one with a field of another type. If the schema has a column
    `CORRUPT`, it holds the text of such a value.
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
            raise SchemaError(f"schema: {CORRUPT} holds the text of a value; make it a string")
        if _has_map(field.type) or _parsed(pa.array([b"{}"]), pa.struct([field])) is None:
            raise SchemaError(
                f"schema: {field.name} has a type that JSON cannot hold, {field.type}; name "
                "its fields in a struct, or read value as binary and parse it with from_json"
            )


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(index).type) for index in range(kind.num_fields))


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type to parse, which is then cast: Arrow parses times as text, but dates as numbers."""
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
    """Appends the objects of the values to `parts`, and the indexes of bad values to `bad`.

    `first` is the index of the first value. A block with a bad value is halved until the value is
    alone.
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
