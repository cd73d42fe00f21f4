"""The columns that records land with: those of Spark's Kafka source, or the fields of their values.

With a schema, a record is its key, the fields of its value, where it was, and the text of a value
that could not be parsed, so that nothing is lost. A record's column that has the name of a field is
called `record_NAME`. Owns the choice; reading is `range_reader`'s, parsing `json_values`'.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from millrace_spark.arrow_columns import arrow_batches
from millrace_spark.json_values import CORRUPT, parse_json
from millrace_spark.options import ReadOptions
from millrace_spark.pipeline.file_formats import columns_of
from millrace_spark.pipeline.ledger import Shape
from millrace_spark.pipeline.value_schema import field_names, own_name
from millrace_spark.range_reader import read_range
from millrace_spark.ranges import OffsetRange

COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
_BESIDE_FIELDS = ("key", "topic", "partition", "offset", "timestamp")


def landed_columns(shape: Shape) -> list[str]:
    """The names of all columns, those that become directories among them."""
    if shape.schema is None:
        return columns_of(shape.format, COLUMNS)
    fields = [name for name in field_names(shape.schema) if name != CORRUPT]
    beside = [own_name(name, fields) for name in _BESIDE_FIELDS]
    return [beside[0], *fields, *beside[1:], CORRUPT]


def time_column(shape: Shape) -> str:
    """The name of the record's timestamp."""
    return own_name("timestamp", field_names(shape.schema) if shape.schema else ())


def record_batches(
    wanted: OffsetRange, options: ReadOptions, shape: Shape
) -> Iterator[pa.RecordBatch]:
    """The records of a range, in batches of all columns.

    No record stops an import: a timestamp that Spark has no value for is null.
    """
    if shape.schema is None:
        columns = columns_of(shape.format, COLUMNS)
        for fetch in read_range(wanted, options):
            yield from arrow_batches(
                fetch, columns=columns, end_offset=wanted.end_offset, late_times="null"
            )
            del fetch
        return
    fields = value_fields(shape.schema)
    names = landed_columns(shape)
    own = {own_name(name, fields.names): name for name in _BESIDE_FIELDS}
    for fetch in read_range(wanted, options):
        for batch in arrow_batches(
            fetch,
            columns=(*_BESIDE_FIELDS, "value"),
            end_offset=wanted.end_offset,
            late_times="null",
        ):
            parsed = parse_json(batch.column("value"), fields)
            yield pa.RecordBatch.from_arrays(
                [batch.column(own[name]) if name in own else parsed.column(name) for name in names],
                names=names,
            )
        del fetch


def value_fields(schema: str) -> pa.Schema:
    """The Arrow types of the fields, and of the text that is none. Raises `SchemaError`."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from millrace_spark.json_values import check_fields

    fields = to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")
    if CORRUPT not in fields.names:
        fields = fields.append(pa.field(CORRUPT, pa.string()))
    check_fields(fields)
    return fields
