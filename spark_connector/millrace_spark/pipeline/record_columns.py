"""The columns that records land with: those of Spark's Kafka source, or the fields of their values.

Owns the choice. Reading is `range_reader`'s, decoding `arrow_columns`'.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millrace_spark.arrow_columns import arrow_batches
from millrace_spark.options import ReadOptions
from millrace_spark.pipeline.file_formats import columns_of
from millrace_spark.pipeline.ledger import Shape
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


def landed_columns(shape: Shape) -> list[str]:
    """The names of all columns, those that become directories among them."""
    return columns_of(shape.format, COLUMNS)


def record_batches(
    wanted: OffsetRange, options: ReadOptions, shape: Shape
) -> Iterator[pa.RecordBatch]:
    """The records of a range, in batches of all columns."""
    columns = landed_columns(shape)
    for fetch in read_range(wanted, options):
        yield from arrow_batches(fetch, columns=columns, end_offset=wanted.end_offset)
