"""Rows of CSV and JSON files with the types of a schema, read as values of records are.

`docs/typed-columns.md` has the rules. Spark splits the files into rows, and the executors read the
fields of each row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millrace._arrow.json_values import CORRUPT, read_json
from millrace.errors import ConfigError
from millrace_spark.pipeline.corrupt_metrics import CORRUPT_FIELDS
from millrace_spark.pipeline.corrupt_records import share
from millrace_spark.pipeline.record_columns import value_fields
from millrace_spark.pipeline.value_schema import field_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EXAMPLE_CHARS_MAX = 80


def typed_rows(
    spark: SparkSession, path: str, schema: str, *, csv: Mapping[str, str] | None
) -> DataFrame:
    """The fields of a schema from `value_schema.parse_schema`, `CORRUPT` and `CORRUPT_FIELDS`.

    `csv` has the options of Spark's reader of CSV; None: lines of JSON. Raises `ConfigError` for a
    field that a CSV does not have, and `SchemaError` for a type that is not read from JSON.
    """
    from pyspark.sql.types import ArrayType, StringType, StructType

    fields = value_fields(schema)
    rows = StructType.fromJson(json.loads(schema))
    if CORRUPT not in rows.names:
        rows = rows.add(CORRUPT, StringType())
    if CORRUPT_FIELDS not in rows.names:
        rows = rows.add(CORRUPT_FIELDS, ArrayType(StringType()))
        fields = fields.append(pa.field(CORRUPT_FIELDS, pa.list_(pa.string())))
    values = _json_lines(spark, path) if csv is None else _csv_objects(spark, path, csv, schema)
    return values.mapInArrow(partial(_read_fields, fields=fields), rows)


def corrupt_rows() -> list[Column]:
    """The metrics of a frame of `typed_rows`, for `corrupt_sentence`."""
    from pyspark.sql import functions as f

    fields = f.col(CORRUPT_FIELDS)
    return [
        f.count(f.lit(1)).alias("rows"),
        f.count(fields).alias("corrupt"),
        f.min(f.when(fields.isNotNull(), f.struct(CORRUPT_FIELDS, CORRUPT))).alias("example"),
    ]


def corrupt_sentence(found: Mapping[str, Any]) -> str | None:
    """What these metrics say; None if no row is corrupt."""
    if not found["corrupt"]:
        return None
    fields, text = found["example"]
    text = text if len(text) <= EXAMPLE_CHARS_MAX else f"{text[:EXAMPLE_CHARS_MAX]}..."
    reason = f"in {', '.join(fields)}" if fields else "which is no JSON object"
    return (
        f"{share(found['corrupt'], found['rows'])}, and null was sent; {CORRUPT} has the text of "
        f"the row. One is {text}, {reason}"
    )


def _read_fields(
    batches: Iterator[pa.RecordBatch], *, fields: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield read_json(batch.column(0).cast(pa.binary()), fields).batch


def _json_lines(spark: SparkSession, path: str) -> DataFrame:
    """The lines that are not blank, as bytes."""
    from pyspark.sql import functions as f

    line = f.col("value")
    return spark.read.text(path).where(f.trim(line) != "").select(line.cast("binary"))


def _csv_objects(
    spark: SparkSession, path: str, options: Mapping[str, str], schema: str
) -> DataFrame:
    """The rows as JSON objects of texts, in bytes. A cell that is null is not in them."""
    from pyspark.sql import functions as f

    table = spark.read.options(**options).csv(path)
    for name in field_names(schema):
        if name not in (*table.columns, CORRUPT, CORRUPT_FIELDS):
            raise ConfigError(
                f"--schema: the files have no column {name!r}; they have {', '.join(table.columns)}"
            )
    cells = (f.col("`" + name.replace("`", "``") + "`") for name in table.columns)
    return table.select(f.to_json(f.struct(*cells)).cast("binary").alias("value"))
