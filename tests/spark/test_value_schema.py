"""Schema files: three notations for the fields of values, and invalid columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace_spark.pipeline.errors import SchemaFileError
from millrace_spark.pipeline.schema_file import read_schema
from millrace_spark.pipeline.value_schema import field_names, parse_schema


def types_of(schema: str) -> dict[str, Any]:
    """The Spark type of each field."""
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}


NESTED = {
    "user": "string",
    "clicks": "long",
    "price": "double",
    "is_new": "boolean",
    "at": "timestamp",
    "day": "date",
    "tags": {"type": "array", "elementType": "string", "containsNull": True},
    "place": {
        "type": "struct",
        "fields": [{"name": "city", "type": "string", "nullable": True, "metadata": {}}],
    },
}
JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "user": {"type": ["string", "null"]},
        "clicks": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "price": {"type": "number"},
        "is_new": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "place": {"$ref": "#/$defs/Place"},
    },
    "required": ["user"],
    "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
DDL = """
    user string, clicks bigint, price double, is_new boolean, at timestamp, day date,
    tags array<string>, place struct<city: string>
"""


@pytest.mark.parametrize("text", [json.dumps(JSON_SCHEMA), DDL])
def test_json_schema_and_ddl_name_the_same_fields(text: str) -> None:
    assert types_of(parse_schema(text)) == NESTED


def test_a_schema_of_spark_is_read_back_with_all_fields_nullable() -> None:
    text = parse_schema(DDL)
    strict = text.replace('"nullable":true', '"nullable":false')
    assert parse_schema(strict) == text
    assert field_names(text) == list(NESTED)


def test_names_in_backticks_and_decimals_are_understood() -> None:
    assert types_of(parse_schema("`a b` decimal(10,2), `c``d` DECIMAL")) == {
        "a b": "decimal(10,2)",
        "c`d": "decimal(10,0)",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is missing at the end"),
        ("{", "--schema: this is not JSON"),
        ('{"type": "object"}', "has no properties"),
        ('{"properties": {"a": {"type": "null"}}}', "a is 'null'"),
        ('{"properties": {"a": {}}}', "a is of no type"),
        ('{"properties": {"a": true}}', "a has True in place of a schema"),
        ('{"properties": {"a": {"type": ["string", "integer"]}}}', "a may be one of several types"),
        ('{"properties": {"a": {"type": "array"}}}', "the array a has no items"),
        ('{"properties": {"a": {"$ref": "other.json"}}}', "only references within the file"),
        ('{"properties": {"a": {"$ref": "#/$defs/B"}}}', "which does not exist"),
        ('{"properties": {"a": {"$ref": "#/properties/a"}}}', "or recursive"),
        ('{"type": "struct", "fields": []}', "no fields"),
        ('{"type": "struct", "fields": [{"name": "a"}]}', "without name or type"),
        (
            '{"type": "struct", "fields": [{"name": "a", "type": "binary"}]}',
            "'binary', which cannot",
        ),
        ("a string, a int", "two fields 'a'"),
        (
            "User string, user int",
            "the schema has the fields 'User' and 'user'; Spark ignores case",
        ),
        ("a struct<b: int, B: int>", "a has the fields 'b' and 'B'; Spark ignores case"),
        ("a map<string,int>", "a is 'map'"),
        ("a array<string", "is missing at the end"),
        ("a struct<b string>", "found 'string' in place of ':'"),
        ("a string; drop", "neither JSON nor"),
        ("a string b", "unexpected 'b'"),
        ("a decimal(x,2)", "needs numbers"),
    ],
)
def test_an_invalid_schema_is_refused_with_a_reason(text: str, sentence: str) -> None:
    with pytest.raises(SchemaFileError) as caught:
        parse_schema(text)
    assert sentence in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaFileError, match=r"--schema .*none: No such file"):
        read_schema(str(tmp_path / "none"))
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(SchemaFileError, match="is not UTF-8"):
        read_schema(str(tmp_path / "bytes"))
    assert read_schema(None) is None


def test_a_schema_may_be_the_text_itself_unless_a_file_has_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_schema("temp double") == parse_schema("temp double")
    long = ", ".join(f"field_{number} int" for number in range(500))
    assert read_schema(long) == parse_schema(long)
    Path("temp double").write_text("origin string")
    assert read_schema("temp double") == parse_schema("origin string")
