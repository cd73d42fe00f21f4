"""The columns of imported files: those of Spark's Kafka source, or the fields of the values.

With a schema, a row has the key, the fields of the value, the position, and the text of a value
that cannot be parsed, so that no data is lost. A record's column with the name of a field is called
`record_NAME`. Owns the choice; `range_reader` reads, and `json_values` parses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from millrace._arrow.columns import arrow_batches
from millrace._arrow.json_values import CORRUPT, parse_json
from millrace_spark.options.read_options import ReadOptions
from millrace_spark.pipeline.file_formats import columns_of
from millrace_spark.pipeline.ledger import FileLayout
from millrace_spark.pipeline.value_schema import field_names, own_name
from millrace_spark.reading.range_reader import read_range
from millrace_spark.reading.ranges import OffsetRange

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


def file_columns(layout: FileLayout) -> list[str]:
    """The names of all columns, including those that become directories."""
    if layout.schema is None:
        return columns_of(layout.format, COLUMNS)
    fields = [name for name in field_names(layout.schema) if name != CORRUPT]
    beside = [own_name(name, fields) for name in _BESIDE_FIELDS]
    return [beside[0], *fields, *beside[1:], CORRUPT]


def time_column(layout: FileLayout) -> str:
    """The name of the record's timestamp."""
    return own_name("timestamp", field_names(layout.schema) if layout.schema else ())


def record_batches(
    wanted: OffsetRange, options: ReadOptions, layout: FileLayout
) -> Iterator[pa.RecordBatch]:
    """The records of a range, in batches of all columns.

    A timestamp that Spark cannot hold becomes null, so that no record fails an import.
    """
    if layout.schema is None:
        columns = columns_of(layout.format, COLUMNS)
        for fetch in read_range(wanted, options):
            yield from arrow_batches(
                fetch, columns=columns, end_offset=wanted.end_offset, late_times="null"
            )
            del fetch
        return
    fields = value_fields(layout.schema)
    names = file_columns(layout)
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
    """The Arrow types of the fields and of the corrupt-record column. Raises `SchemaError`."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from millrace._arrow.json_values import check_fields

    fields = to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")
    if CORRUPT not in fields.names:
        fields = fields.append(pa.field(CORRUPT, pa.string()))
    check_fields(fields)
    return fields
