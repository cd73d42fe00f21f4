"""The batch reader that Spark plans on the driver, pickles, and runs on executors.

Owns the fit to Spark's interface. Holds options and column names only: connections are made by
the call that needs them and closed by its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from millrace_spark.options import ReadOptions, parse_read_options
from millrace_spark.ranges import OffsetRange
from millrace_spark.schema import check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType


def make_reader(options: Mapping[str, str], schema: StructType) -> MillraceReader:
    """A reader of the columns of `schema`. Raises `OptionError` and `SchemaError`."""
    read = parse_read_options(options, is_stream=False)
    return MillraceReader(read, wanted_columns(schema, read))


def wanted_columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """The names of the columns of a schema that fits such a read. Raises `SchemaError`."""
    return check_columns(
        ((field.name, field.dataType.simpleString(), _is_nullable(field)) for field in schema),
        options,
    )


class MillraceReader(DataSourceReader):
    """Reads the ranges of one plan; one range is one task."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """One partition for each offset range, found by asking the brokers."""
        from millrace_spark.planner import plan

        return [InputPartition(found) for found in plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range as Arrow batches."""
        wanted = partition.value
        # For a plan without ranges Spark runs one task, with a partition of its own making.
        if not isinstance(wanted, OffsetRange):
            return
        from millrace_spark.arrow_columns import arrow_batches
        from millrace_spark.range_reader import read_range

        for fetch in read_range(wanted, self._options):
            yield from arrow_batches(fetch, columns=self._columns, end_offset=wanted.end_offset)


def _is_nullable(field: StructField) -> bool:
    """Whether the field and all within it may be null; a type's short name does not say."""
    return field.nullable and "false" not in field.dataType.json()
