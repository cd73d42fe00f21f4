"""The columns of imported files: those of Spark's Kafka source, or the fields of the values.

With a schema, a row has the key, the fields of the value, the position, and the text of a value
that is corrupt, so that no data is lost. A record's column with the name of a field is called
`record_NAME`. Owns the choice; `range_reader` reads, and `typed_batches` parses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from millrace._arrow.columns import arrow_batches
from millrace._arrow.json_columns import Corruption
from millrace._arrow.json_values import CORRUPT
from millrace_spark.options.read_options import ReadOptions
from millrace_spark.pipeline.errors import ImportRefused
from millrace_spark.pipeline.file_formats import columns_of
from millrace_spark.pipeline.ledger import FileLayout
from millrace_spark.pipeline.value_schema import field_names, field_types, own_name
from millrace_spark.reading.range_reader import read_range
from millrace_spark.reading.ranges import OffsetRange
from millrace_spark.reading.typed_batches import TypedBatch, typed_batches

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


def require_only_new_fields(current: FileLayout, wanted: FileLayout) -> None:
    """Raises `ImportRefused` unless `wanted` has all fields of `current`, and only more of them."""
    assert current.schema is not None
    assert wanted.schema is not None
    before, after = field_types(current.schema), field_types(wanted.schema)
    for name, kind in before.items():
        if name not in after:
            raise ImportRefused(f"{name} is missing")
        if after[name] != kind:
            raise ImportRefused(f"{name} has another type")
    taken = {name.lower() for name in (*file_columns(current), *current.partition_by)}
    for name in after.keys() - before.keys():
        if name.lower() in taken:
            raise ImportRefused(f"its files have a column {name} that is not the field")
        if wanted.format == "csv":
            raise ImportRefused(f"{name} is new, and columns of CSV are read by their position")


def time_column(layout: FileLayout) -> str:
    """The name of the record's timestamp."""
    return own_name("timestamp", field_names(layout.schema) if layout.schema else ())


def record_batches(
    wanted: OffsetRange, options: ReadOptions, layout: FileLayout
) -> Iterator[TypedBatch]:
    """The records of a range, in batches of all columns, and what did not fit the schema.

    A timestamp that Spark cannot hold becomes null, so that no record fails an import.
    """
    if layout.schema is None:
        columns = columns_of(layout.format, COLUMNS)
        for fetch in read_range(wanted, options):
            for batch in arrow_batches(
                fetch, columns=columns, end_offset=wanted.end_offset, late_times="null"
            ):
                yield TypedBatch(batch, batch.column("offset"), Corruption())
            del fetch
        return
    fields = value_fields(layout.schema)
    own = {own_name(name, fields.names): name for name in _BESIDE_FIELDS}
    for fetch in read_range(wanted, options):
        yield from typed_batches(
            fetch,
            names=file_columns(layout),
            own=own,
            fields=fields,
            end_offset=wanted.end_offset,
            late_times="null",
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
