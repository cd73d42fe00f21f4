"""A query on Spark, over the same offsets and the same columns as on DuckDB.

Owns the views and the settings of the session that make the text of the query mean the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millrace_cli.client_identity import identity
from millrace_cli.sql.query import Query
from millrace_cli.sql.rows import Rows
from millrace_cli.sql.topics import TopicTable
from millrace_spark.options.credentials import credentials_of
from millrace_spark.pipeline.aggregate_run import own_types, quoted, record_prefix
from millrace_spark.pipeline.spark_query import planned
from millrace_spark.pipeline.spark_tasks import error_of_task
from millrace_spark.pipeline.value_schema import field_names, own_name
from millrace_spark.reading.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAME_MEANING = {
    "spark.sql.session.timeZone": "UTC",
    # Names in double quotes, as in DuckDB and in standard SQL.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
}


@contextmanager
def running(
    query: Query, tables: Sequence[TopicTable], *, servers: str, spark: Callable[[], SparkSession]
) -> Iterator[Rows]:
    """The rows of a query, which the driver collects before the first is read.

    Raises `QueryRefused`, `JobFailed` and the errors of the connector.
    """
    session = spark()
    before = {name: session.conf.get(name, None) for name in SAME_MEANING}
    try:
        for name, value in SAME_MEANING.items():
            session.conf.set(name, value)
        for table in tables:
            _view(session, table, servers).createOrReplaceTempView(f"`{table.topic}`")
        found = planned(session, query.text).toArrow()
    except Exception as error:
        raise error_of_task(error) from error
    finally:
        for table in tables:
            session.catalog.dropTempView(table.topic)
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)
    yield Rows(found.schema, iter(found.to_batches()))


def _view(session: SparkSession, table: TopicTable, servers: str) -> DataFrame:
    """The topic with the columns that it has on DuckDB."""
    from pyspark.sql import functions as f

    fields = [] if table.schema is None else field_names(table.schema)
    prefix = record_prefix(fields)
    frame = _frame(session, table, servers, prefix)
    own = [f.col(prefix + name).alias(own_name(name, fields)) for name in COLUMNS]
    return frame.select(*own, *(f.col(quoted(name)) for name in fields))


def _frame(session: SparkSession, table: TopicTable, servers: str, prefix: str) -> DataFrame:
    from pyspark.sql.types import StructType

    columns = own_types(prefix)
    if table.schema is not None:
        columns = StructType([*columns, *StructType.fromJson(json.loads(table.schema))])
    if not table.starts:
        return session.createDataFrame([], columns)
    reader = session.read.format("millrace").options(
        **{
            "millrace.servers": servers,
            "assign": json.dumps({table.topic: [*table.starts]}),
            "startingOffsets": json.dumps({table.topic: table.starts}),
            "endingOffsets": json.dumps({table.topic: table.ends}),
            "includeHeaders": "true",
            **credentials_of(identity()).options(),
        }
    )
    if table.schema is not None:
        reader = reader.options(valueFormat="json", recordPrefix=prefix).schema(columns)
    return reader.load()
