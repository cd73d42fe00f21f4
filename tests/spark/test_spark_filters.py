"""Filters and schemas from Spark: conditions of the reader, and filters left to Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from millrace_spark.reading.filter_pushdown import Condition

sql = pytest.importorskip("pyspark.sql.datasource", reason="needs pyspark: '.[dev,spark]'")
pytestmark = pytest.mark.spark
NOON = datetime(2026, 1, 31, 12, microsecond=1, tzinfo=UTC)
NOON_US = 1_769_860_800_000_001


@pytest.mark.parametrize(
    ("kind", "column", "value", "operator", "is_exact"),
    [
        ("EqualTo", "partition", 1, "in", True),
        ("LessThan", "partition", 1, "<", True),
        ("LessThanOrEqual", "offset", 1, "<=", True),
        ("GreaterThan", "offset", 1, ">", True),
        ("GreaterThanOrEqual", "offset", 1, ">=", True),
        ("EqualTo", "topic", "clicks", "in", True),
        ("GreaterThan", "timestamp", NOON, ">", False),
        ("EqualTo", "timestamp", NOON, "in", False),
    ],
)
def test_a_filter_is_a_condition_and_goes_back_unless_it_is_exact(
    kind: str, column: str, value: Any, operator: Any, is_exact: bool
) -> None:
    from millrace_spark.reading.spark_filters import translate

    given = getattr(sql, kind)((column,), value)
    number = NOON_US if value == NOON else value
    left = [] if is_exact else [given]
    assert translate([given]) == ((Condition(column, operator, (number,)),), left)


def test_a_list_is_one_condition_and_its_negation_another() -> None:
    from millrace_spark.reading.spark_filters import translate

    several = sql.In(("partition",), [1, 2])
    conditions, left = translate([several, sql.Not(several), sql.In(("offset",), [3, 9])])
    assert conditions == (
        Condition("partition", "in", (1, 2)),
        Condition("partition", "not in", (1, 2)),
        Condition("offset", "in", (3, 9)),
    )
    assert left == [sql.In(("offset",), [3, 9])]


def test_columns_of_the_place_and_time_are_never_null() -> None:
    from millrace_spark.reading.spark_filters import translate

    assert translate([sql.IsNotNull(("offset",))]) == ((), [])
    assert translate([sql.IsNotNull(("key",))]) == ((), [sql.IsNotNull(("key",))])


def test_unknown_filters_are_returned_to_spark() -> None:
    from millrace_spark.reading.spark_filters import translate

    filters = [
        sql.IsNull(("offset",)),
        sql.EqualTo(("value",), b"x"),
        sql.EqualTo(("offset", "inner"), 1),
        sql.EqualTo(("offset",), True),
        sql.GreaterThan(("offset",), 1.5),
        sql.LessThan(("timestamp",), NOON),
        sql.GreaterThan(("timestamp",), NOON.replace(tzinfo=None)),
        sql.Not(sql.EqualTo(("offset",), 1)),
        sql.StringStartsWith(("topic",), "cl"),
    ]
    assert translate(filters) == ((), filters)


@pytest.mark.parametrize("is_fit", [True, False])
def test_a_field_within_a_field_must_be_allowed_to_be_null(is_fit: bool) -> None:
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    from millrace.errors import SchemaError
    from millrace_spark.options.read_options import parse_read_options
    from millrace_spark.reading.reader import wanted_columns

    inner = StructType([StructField("false", StringType(), nullable=is_fit)])
    schema = StructType([StructField("rows", ArrayType(inner))])
    given = {"millrace.servers": "a:1", "subscribe": "clicks", "valueFormat": "json"}
    read = parse_read_options(given, is_stream=False)
    if is_fit:
        assert wanted_columns(schema, read) == ("rows",)
    else:
        with pytest.raises(SchemaError, match="rows is declared NOT NULL"):
            wanted_columns(schema, read)
