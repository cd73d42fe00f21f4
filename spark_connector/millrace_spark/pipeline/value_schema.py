"""The schema of JSON values, from a file: JSON Schema, Spark's own JSON, or `name type, ...`.

Owns the three notations, which are converted to one form: a struct in Spark's JSON. Rejects types
that a column cannot have, with the place in the file. Knows no files and no Spark.
Source: JSON Schema 2020-12 (`type`, `format`, `properties`, `items`, `anyOf`, `$ref`, `enum`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from millrace_spark.pipeline.errors import SchemaFileError

DEPTH_MAX = 32
FIELDS_MAX = 10_000
_NAMES = {
    "string": "string",
    "boolean": "boolean",
    "byte": "byte",
    "tinyint": "byte",
    "short": "short",
    "smallint": "short",
    "int": "integer",
    "integer": "integer",
    "long": "long",
    "bigint": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
}
"""Spark's names of types in DDL, and in its JSON."""
_FORMATS = {"date-time": "timestamp", "date": "date"}
_SCALARS = {"integer": "long", "number": "double", "boolean": "boolean"}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z_0-9]+|[<>(),:])")


def parse_schema(text: str, *, option: str = "--schema") -> str:
    """The struct of a schema as Spark's JSON. Raises `SchemaFileError`, which names the option.

    >>> parse_schema("user string")
    '{"type":"struct","fields":[{"name":"user","type":"string","nullable":true,"metadata":{}}]}'
    """
    try:
        struct = _parsed(text)
    except SchemaFileError as error:
        raise SchemaFileError(f"{option}: {error}") from None
    return json.dumps(struct, separators=(",", ":"))


def _parsed(text: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SchemaFileError(f"this is not JSON: {error}") from None
        if document.get("type") == "struct":
            struct = _of_spark(document, "the struct")
        else:
            struct = _JsonSchema(document).struct(document, "the schema", 0)
    else:
        struct = _Ddl(text).struct()
    if not struct["fields"]:
        raise SchemaFileError("there are no fields")
    return struct


def field_names(schema: str) -> list[str]:
    """The names of the fields of a schema from `parse_schema`, in order."""
    return [field["name"] for field in json.loads(schema)["fields"]]


def field_types(schema: str) -> dict[str, Any]:
    """The type of each field of a schema from `parse_schema`, as Spark's JSON has it."""
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}


def own_name(column: str, fields: Iterable[str]) -> str:
    """The name of a record's column beside the fields of its value; Spark ignores case.

    >>> own_name("timestamp", ["Timestamp", "user"])
    'record_timestamp'
    """
    return f"record_{column}" if column.lower() in map(str.lower, fields) else column


def require_distinct(columns: Iterable[str]) -> None:
    """Raises `SchemaFileError` if a field has the name of another column; Spark ignores case."""
    seen: set[str] = set()
    for name in map(str.lower, columns):
        if name in seen:
            raise SchemaFileError(
                f"--schema: another column is named {name}, and Spark ignores case; leave the "
                "field out"
            )
        seen.add(name)


def _struct(fields: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    seen: dict[str, str] = {}
    for name, _ in fields:
        other = seen.get(name.lower())
        if other == name:
            raise SchemaFileError(f"{where} has two fields {name!r}")
        if other is not None:
            raise SchemaFileError(
                f"{where} has the fields {other!r} and {name!r}; Spark ignores case, so "
                "leave one out"
            )
        seen[name.lower()] = name
    if len(seen) > FIELDS_MAX:
        raise SchemaFileError(f"{where} has more than {FIELDS_MAX} fields")
    # Nullable, because any producer may have sent a value without the field.
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields
        ],
    }


def _array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


class _JsonSchema:
    """Reads the types of a JSON Schema; references point into `root`."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def struct(self, node: dict[str, Any], where: str, depth: int) -> dict[str, Any]:
        """An object with its properties."""
        properties = node.get("properties")
        if not isinstance(properties, dict) or not properties:
            raise SchemaFileError(
                f"{where} has no properties; name them, as in "
                '{"type": "object", "properties": {"user": {"type": "string"}}}'
            )
        return _struct(
            [(name, self._kind(each, name, depth + 1)) for name, each in properties.items()], where
        )

    def _kind(self, node: Any, where: str, depth: int) -> Any:
        if not isinstance(node, dict):
            raise SchemaFileError(f"{where} has {node!r} in place of a schema")
        if depth > DEPTH_MAX:
            raise SchemaFileError(f"{where} is deeper than {DEPTH_MAX}, or recursive")
        if "$ref" in node:
            return self._kind(self._referred(node["$ref"], where), where, depth + 1)
        for choice in ("anyOf", "oneOf"):
            if choice in node:
                others = [each for each in node[choice] if each != {"type": "null"}]
                return self._kind(_only(others, where), where, depth + 1)
        kind = node.get("type")
        if isinstance(kind, list):
            kind = _only([each for each in kind if each != "null"], where)
        if kind is None and "enum" in node:
            kind = "string" if all(isinstance(each, str) for each in node["enum"]) else None
        if kind == "string":
            return _FORMATS.get(node.get("format", ""), "string")
        if kind == "object":
            return self.struct(node, where, depth)
        if kind == "array":
            if "items" not in node:
                raise SchemaFileError(f"the array {where} has no items; add them")
            return _array(self._kind(node["items"], f"the items of {where}", depth + 1))
        if kind in _SCALARS:
            return _SCALARS[kind]
        raise SchemaFileError(
            f"{where} is {'of no type' if kind is None else repr(kind)}; a column can be "
            "string, integer, number, boolean, array or object"
        )

    def _referred(self, reference: Any, where: str) -> Any:
        node: Any = self._root
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise SchemaFileError(
                f"{where} refers to {reference!r}; only references within the file "
                "(#/$defs/...) are supported"
            )
        for part in reference[2:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or part not in node:
                raise SchemaFileError(f"{where} refers to {reference}, which does not exist")
            node = node[part]
        return node


def _only(choices: list[Any], where: str) -> Any:
    if len(choices) != 1:
        raise SchemaFileError(
            f"{where} may be one of several types, and a column has one type; choose one"
        )
    return choices[0]


def _of_spark(node: Any, where: str) -> Any:
    """A type of Spark's JSON, with all parts nullable."""
    if isinstance(node, str):
        name = re.sub(r"\(.*\)$", "", node)
        if name in _NAMES.values() or re.fullmatch(r"decimal(\(\d+,\d+\))?", node):
            return node
    elif isinstance(node, dict) and node.get("type") == "array":
        return _array(_of_spark(node.get("elementType"), f"the items of {where}"))
    elif isinstance(node, dict) and node.get("type") == "struct":
        try:
            fields = [(field["name"], field["type"]) for field in node["fields"]]
        except (KeyError, TypeError):
            raise SchemaFileError(f"{where} has fields without name or type") from None
        return _struct([(name, _of_spark(kind, name)) for name, kind in fields], where)
    raise SchemaFileError(f"{where} is {node!r}, which cannot be read from JSON")


class _Ddl:
    """Reads `name type, name array<type>, name struct<name:type>`."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        text = text.strip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise SchemaFileError(
                    f"{text[position : position + 20]!r} is neither JSON nor `name type, name type`"
                )
            self._tokens.append(found[1])
            position = found.end()
        self._at = 0

    def struct(self) -> dict[str, Any]:
        """The fields of the whole text."""
        fields = self._fields("", 0)
        if self._at < len(self._tokens):
            raise SchemaFileError(f"unexpected {self._next()!r} at the end")
        return _struct(fields, "the schema")

    def _fields(self, colon: str, depth: int) -> list[tuple[str, Any]]:
        fields = []
        while True:
            name = self._next().strip("`").replace("``", "`")
            if colon:
                self._expect(colon)
            fields.append((name, self._kind(name, depth)))
            if self._peek() != ",":
                return fields
            self._next()

    def _kind(self, where: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise SchemaFileError(f"{where} is deeper than {DEPTH_MAX}")
        name = self._next().lower()
        if name in _NAMES:
            return _NAMES[name]
        if name == "decimal" and self._peek() != "(":
            return "decimal(10,0)"
        if name == "decimal":
            self._expect("(")
            precision = self._next()
            self._expect(",")
            scale = self._next()
            self._expect(")")
            if not (precision.isdigit() and scale.isdigit()):
                raise SchemaFileError(f"{where} needs numbers, such as decimal(10,2)")
            return f"decimal({precision},{scale})"
        if name in ("array", "struct"):
            self._expect("<")
            if name == "array":
                found: Any = _array(self._kind(f"the items of {where}", depth + 1))
            else:
                found = _struct(self._fields(":", depth + 1), where)
            self._expect(">")
            return found
        raise SchemaFileError(f"{where} is {name!r}, which cannot be read from JSON")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        if self._at == len(self._tokens):
            raise SchemaFileError("a name or a type is missing at the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise SchemaFileError(f"found {found!r} in place of {token!r}")
