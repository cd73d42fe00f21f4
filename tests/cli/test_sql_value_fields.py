"""The fields of JSON values, inferred from a sample: names, order and types."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from millrace_cli.sql.value_fields import FIELDS_MAX, arrow_fields, infer_schema
from millrace_spark.pipeline.value_schema import parse_schema


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([{"a": 1}], {"a": pa.int64()}),
        ([{"a": 1}, {"a": 1.5}], {"a": pa.float64()}),
        ([{"a": 2**63}], {"a": pa.float64()}),
        ([{"a": True}], {"a": pa.bool_()}),
        ([{"a": True}, {"a": 1}], {"a": pa.string()}),
        ([{"a": "x"}, {"a": 1}], {"a": pa.string()}),
        ([{"a": "2026-01-31T12:00:00Z"}], {"a": pa.string()}),
        ([{"a": None}], {"a": pa.string()}),
        ([{"a": None}, {"a": 1}, {"a": None}], {"a": pa.int64()}),
        ([{"b": 1}, {"a": 1, "b": 2}], {"b": pa.int64(), "a": pa.int64()}),
        ([{"a": []}, {"a": [1, 2.5]}], {"a": pa.list_(pa.float64())}),
        ([{"a": [1]}, {"a": {}}], {"a": pa.string()}),
        ([{"a": {"b": 1}}, {"a": {"c": "x"}}], {"a": pa.struct({"b": "int64", "c": "string"})}),
        ([{"a": {}}], {"a": pa.string()}),
        ([{"a": 1, "A": "x"}], {"a": pa.int64()}),
        ([{"": 1, "a": 1}], {"a": pa.int64()}),
        ([7, [1], None, {"a": 1}], {"a": pa.int64()}),
    ],
)
def test_a_field_has_the_type_that_holds_all_values_of_the_sample(
    values: list[object], wanted: dict[str, pa.DataType]
) -> None:
    schema = infer_schema([json.dumps(value).encode() for value in values])
    assert arrow_fields(schema) == pa.schema(wanted)


@pytest.mark.parametrize("values", [[], [None], [b""], [b"text"], [b"[1]"], [b"{}"], [b"\xff"]])
def test_values_that_are_no_objects_have_no_fields(values: list[bytes | None]) -> None:
    assert infer_schema(values) is None
    assert arrow_fields(None) is None


def test_values_with_keys_of_their_own_have_a_bounded_number_of_fields() -> None:
    schema = infer_schema([json.dumps({f"k{n}": n}).encode() for n in range(2 * FIELDS_MAX)])
    fields = arrow_fields(schema)
    assert fields is not None
    assert len(fields) == FIELDS_MAX


def test_an_inferred_schema_is_one_that_a_schema_file_may_have() -> None:
    schema = infer_schema([b'{"a": 1, "b": {"c": [true]}, "d": null}'])
    assert schema is not None
    assert json.loads(parse_schema(schema)) == json.loads(schema)


def test_every_type_of_a_schema_file_has_a_column_in_arrow() -> None:
    ddl = (
        "a string, b boolean, c byte, d short, e int, f long, g float, h double, i date, "
        "j timestamp, k array<int>, l struct<m: int>, n decimal(10,2), o decimal"
    )
    fields = arrow_fields(parse_schema(ddl))
    assert fields is not None
    assert [str(kind) for kind in fields.types] == [
        *("string", "bool", "int8", "int16", "int32", "int64", "float", "double"),
        *("date32[day]", "timestamp[us, tz=UTC]", "list<item: int32>", "struct<m: int32>"),
        *("decimal128(10, 2)", "decimal128(10, 0)"),
    ]
