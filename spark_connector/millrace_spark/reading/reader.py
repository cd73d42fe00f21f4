"""The batch reader, as Spark's Python Data Source API sees it.

Owns the adaptation to that interface. Spark plans with it on the driver, pickles it, and reads with
it on the executors. It holds options and column names only: each call opens and closes its own
connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from millrace_spark.errors import message_first
from millrace_spark.options.read_options import ReadOptions, parse_read_options
from millrace_spark.reading.filter_pushdown import Condition
from millrace_spark.reading.ranges import OffsetRange
from millrace_spark.reading.schema import check_columns, record_column
from millrace_spark.worker_memory import worker_memory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructField, StructType


_NULLABILITY = ("nullable", "containsNull", "valueContainsNull")
"""The keys in a type's JSON that tell whether a part of it may be null."""


def make_reader(options: Mapping[str, str], schema: StructType) -> MillraceReader:
    """A reader of the columns of `schema`. Raises `OptionError` and `SchemaError`."""
    read = parse_read_options(options, is_stream=False)
    kind = FilteringReader if read.push_filters else MillraceReader
    return kind(read, wanted_columns(schema, read), json_fields(schema, read))


def wanted_columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """The names of the columns of a user's schema. Raises `SchemaError`."""
    return check_columns(
        ((field.name, field.dataType.simpleString(), _is_nullable(field)) for field in schema),
        options,
    )


def json_fields(schema: StructType, options: ReadOptions) -> pa.Schema | None:
    """The columns that are fields of the values; None if values are not parsed.

    Raises `SchemaError` for a type that Arrow does not read from JSON.
    """
    if options.value_format != "json":
        return None
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType as Struct

    from millrace._arrow.json_values import check_fields

    fields = Struct([field for field in schema if record_column(field.name, options) is None])
    found = to_arrow_schema(fields, timezone="UTC")
    check_fields(found)
    return found if len(found) else None


class MillraceReader(DataSourceReader):
    """Reads the ranges of one plan; one range is one task."""

    def __init__(
        self, options: ReadOptions, columns: tuple[str, ...], json_fields: pa.Schema | None
    ) -> None:
        self._options = options
        self._columns = columns
        self._json_fields = json_fields
        self._own = {
            name: own for name in columns if (own := record_column(name, options)) is not None
        }
        self._conditions: tuple[Condition, ...] = ()

    def partitions(self) -> list[InputPartition]:
        """One Spark partition for each offset range that the planner finds."""
        from millrace_spark.reading.planner import plan

        with message_first(), worker_memory():
            return [InputPartition(found) for found in plan(self._options, self._conditions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range as Arrow batches."""
        wanted = partition.value
        # For a plan without ranges Spark runs one task, with a partition that Spark creates.
        if not isinstance(wanted, OffsetRange):
            return
        from millrace._arrow.columns import arrow_batches
        from millrace_spark.reading.range_reader import read_range
        from millrace_spark.reading.typed_batches import typed_batches

        with message_first(), worker_memory():
            for fetch in read_range(wanted, self._options):
                if self._json_fields is None:
                    yield from arrow_batches(
                        fetch, columns=self._columns, end_offset=wanted.end_offset
                    )
                else:
                    for found in typed_batches(
                        fetch,
                        names=self._columns,
                        own=self._own,
                        fields=self._json_fields,
                        end_offset=wanted.end_offset,
                    ):
                        yield found.batch
                del fetch


class FilteringReader(MillraceReader):
    """Reads only ranges that may fulfil a query's filters.

    A class of its own, because Spark rejects a reader with `pushFilters` unless Spark is set to
    push filters. The option is off by default: Spark, up to 4.3 at least, keeps one plan for all
    queries of a `load()`, that of the last filters it pushed.
    """

    def pushFilters(  # noqa: N802 - Spark's name
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Takes the filters that ranges express; returns those that Spark has to apply."""
        from millrace_spark.reading.spark_filters import translate

        self._conditions, remaining = translate(filters)
        return remaining


def _is_nullable(field: StructField) -> bool:
    """Whether the field and all its parts may be null; only the type's JSON tells it."""
    text = field.dataType.json()
    return field.nullable and not any(f'"{name}":false' in text for name in _NULLABILITY)
