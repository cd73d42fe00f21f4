"""The typed fields of JSON values: from a schema, or inferred from values.

A schema is a struct in Spark's JSON, as `value_schema.parse_schema` makes it, so that DuckDB and
Spark read the same columns. Owns the inference and the Arrow type of each of Spark's types. Knows
no files and no records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

FIELDS_MAX = 1_000
"""Fields that are inferred; a value with keys of its own per record has more."""
_LONG_END = 2**63
_SCALARS = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_UNKNOWN = "null"
"""The type of a field that is null so far; a string in the end."""


def arrow_fields(schema: str | None) -> pa.Schema | None:
    """The fields of a schema as columns of Arrow.

    >>> arrow_fields(infer_schema([b'{"user": 7}']))
    user: int64
    """
    if schema is None:
        return None
    return pa.schema(
        [(each["name"], _arrow(each["type"])) for each in json.loads(schema)["fields"]]
    )


def infer_schema(values: Iterable[bytes | None]) -> str | None:
    """The schema of values; None if no value is a JSON object with fields.

    Numbers without fraction are `long`, others `double`; texts stay texts, also those of times. A
    field of several types is a string. Of fields whose names differ in case only the first counts.
    """
    found: dict[str, Any] = {}
    for value in values:
        try:
            parsed = json.loads(value) if value else None
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            _add(found, parsed)
    return json.dumps(_finished({"struct": found})) if found else None


def _add(fields: dict[str, Any], value: dict[str, Any]) -> None:
    known = {name.lower(): name for name in fields}
    for name, item in value.items():
        if known.setdefault(name.lower(), name) != name or not name:
            continue
        if name in fields or len(fields) < FIELDS_MAX:
            fields[name] = _merged(fields.get(name, _UNKNOWN), _type_of(item))


def _type_of(item: Any) -> Any:
    match item:
        case None:
            return _UNKNOWN
        case bool():
            return "boolean"
        case int():
            return "long" if -_LONG_END <= item < _LONG_END else "double"
        case float():
            return "double"
        case str():
            return "string"
        case list():
            element: Any = _UNKNOWN
            for each in item:
                element = _merged(element, _type_of(each))
            return {"array": element}
    fields: dict[str, Any] = {}
    _add(fields, item)
    return {"struct": fields}


def _merged(one: Any, other: Any) -> Any:
    if one == other or other == _UNKNOWN:
        return one
    if one == _UNKNOWN:
        return other
    if {*map(str, (one, other))} == {"long", "double"}:
        return "double"
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        if "array" in one:
            return {"array": _merged(one["array"], other["array"])}
        fields = dict(one["struct"])
        for name, kind in other["struct"].items():
            fields[name] = _merged(fields.get(name, _UNKNOWN), kind)
        return {"struct": fields}
    return "string"


def _finished(kind: Any) -> Any:
    """A type in Spark's JSON."""
    if kind == _UNKNOWN or kind == {"struct": {}}:
        return "string"
    if isinstance(kind, str):
        return kind
    if "array" in kind:
        return {"type": "array", "elementType": _finished(kind["array"]), "containsNull": True}
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": _finished(each), "nullable": True, "metadata": {}}
            for name, each in kind["struct"].items()
        ],
    }


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            precision, scale = (int(each) for each in re.findall(r"\d+", kind) or (10, 0))
            return pa.decimal128(precision, scale)
        return _SCALARS[kind]
    if kind["type"] == "array":
        return pa.list_(_arrow(kind["elementType"]))
    return pa.struct([(each["name"], _arrow(each["type"])) for each in kind["fields"]])
