"""Topic statistics: records, bytes and distinct keys by columns, or the result of a query.

Owns the view of records for queries, and the query for `--by`. The connector reads.

The view is called `records`; with one topic, it has the topic's name too. It has the columns of a
read, `date` and `hour` of the timestamp in UTC, and with a schema the fields of the values. A
record's column with the name of a field is called `record_NAME`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.errors import ConfigError
from millrace_spark.options.bounds import parse_time
from millrace_spark.options.credentials import NO_CREDENTIALS, Credentials
from millrace_spark.options.read_options import parse_read_options
from millrace_spark.pipeline.corrupt_metrics import (
    CORRUPT_FIELDS,
    corrupt_metrics,
    corrupt_sentence,
    observed_sentence,
)
from millrace_spark.pipeline.corrupt_records import CorruptLimit
from millrace_spark.pipeline.errors import TooManyCorrupt
from millrace_spark.pipeline.executor_wait import executor_wait
from millrace_spark.pipeline.progress import NoProgress, Progress
from millrace_spark.pipeline.spark_query import planned
from millrace_spark.pipeline.spark_tasks import error_of_task
from millrace_spark.pipeline.value_schema import field_names, own_name, require_distinct
from millrace_spark.reading.schema import COLUMNS, ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

VIEW = "records"
ROWS_MAX = 10_000
FORMATS = ("parquet", "orc", "csv", "json")
_OWN = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_TIMES = ("date", "hour")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


@dataclass(frozen=True, slots=True)
class AggregateSettings:
    """The topics and the query. Raises `ConfigError`."""

    topics: tuple[str, ...]
    servers: str = "localhost:9092"
    by: tuple[str, ...] = ("hour",)
    """The columns to group by."""
    schema: str | None = None
    """The schema of the values, from `value_schema.parse_schema`."""
    sql: str | None = None
    """A query over the view instead of `by`."""
    since: str | None = None
    """Earliest time, included: ISO 8601 with a time zone, or milliseconds."""
    until: str | None = None
    """Latest time, excluded."""
    to: str | None = None
    """The directory for the rows as files; None: no files."""
    file_format: str = "parquet"
    rows_max: int = 1_000
    """Most rows of the result; files have all rows."""
    deadline_ms: int = 30_000
    max_corrupt: str | None = None
    """`N` or `N%`: most corrupt records of the topics and times; None: any number."""
    credentials: Credentials = NO_CREDENTIALS

    def __post_init__(self) -> None:
        CorruptLimit.parse(self.max_corrupt)
        if self.max_corrupt is not None and self.schema is None:
            raise ConfigError("--max-corrupt: needs --schema; without it no record is corrupt")
        for option, text in (("--since", self.since), ("--until", self.until)):
            if text is not None:
                parse_time(option, text)
        parse_read_options(self.read_options, is_stream=False)
        if self.file_format not in FORMATS:
            raise ConfigError(f"--format: {self.file_format!r} is none of {', '.join(FORMATS)}")
        if not 1 <= self.rows_max <= ROWS_MAX:
            raise ConfigError(f"--limit: from 1 to {ROWS_MAX:,}; --to DIR takes any number")
        if self.to is not None and Path(self.to).exists():
            raise ConfigError(f"--to {self.to} exists already; name a new directory")
        require_distinct(self.columns)
        if self.sql is not None:
            if not self.sql.strip():
                raise ConfigError("--sql: the file has no query")
            return
        if not self.by:
            raise ConfigError("--by: name a column, such as hour or key")
        for name in self.by:
            if name not in self.columns:
                raise ConfigError(f"--by: no column {name!r}; there are {', '.join(self.columns)}")

    @property
    def columns(self) -> list[str]:
        """The names of the columns of the view."""
        fields = [] if self.schema is None else field_names(self.schema)
        own = [own_name(name, fields) for name in (*_OWN, *_TIMES)]
        return [*own, *fields]

    @property
    def read_options(self) -> dict[str, str]:
        """The options of the connector's reader.

        The read starts at the first record at or after `since`. A filter removes later records of
        earlier times, and records after `until`, because times in a log need not rise.
        """
        options = {
            "millrace.servers": self.servers,
            "subscribe": ",".join(self.topics),
            "includeHeaders": "true",
            "deadlineMs": str(self.deadline_ms),
            **self.credentials.options(),
        }
        return options if self.since is None else options | {"startingTimestamp": self.since}


@dataclass(frozen=True, slots=True)
class Statistics:
    """The rows of the result, at most `rows_max`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    numeric: frozenset[str]
    """Columns of numbers."""
    is_cut: bool
    """Whether there were more rows."""
    corrupt: str | None = None
    """A sentence about the records with values that do not fit the schema, if there are any."""


def aggregate(
    spark: Callable[[], SparkSession],
    settings: AggregateSettings,
    *,
    progress: Progress | None = None,
) -> Statistics:
    """Runs the query. Raises `ConfigError`, `QueryRefused`, `JobFailed` and the reader's errors.

    Raises `TooManyCorrupt` before the query runs, for more corrupt records than allowed.
    """
    running = spark()
    try:
        with executor_wait(running, (progress or NoProgress()).warning):
            return _statistics(running, settings)
    except Exception as error:
        raise error_of_task(error) from error


def _statistics(spark: SparkSession, settings: AggregateSettings) -> Statistics:
    from pyspark.sql import Observation

    corrupt = Observation("corrupt")
    _make_views(spark, settings, corrupt)
    found = planned(spark, settings.sql or query_of(settings))
    if settings.to is not None:
        # Cached, so that the query runs once, and the result and the files have the same rows.
        found = found.cache()
        found.write.format(settings.file_format).mode("errorifexists").save(settings.to)
    result = _texts(found).limit(settings.rows_max + 1)
    rows = result.collect()
    return Statistics(
        tuple(found.columns),
        tuple(tuple(row) for row in rows[: settings.rows_max]),
        frozenset(each.name for each in found.schema if _is_number(each.dataType.typeName())),
        len(rows) > settings.rows_max,
        None if settings.schema is None else observed_sentence(result, corrupt),
    )


def _require_few_corrupt(frame: DataFrame, metrics: list[Column], max_corrupt: str) -> None:
    """Raises `TooManyCorrupt`. Reads all records: a query may read some of them, or some twice."""
    (found,) = frame.agg(*metrics).collect()
    limit = CorruptLimit.parse(max_corrupt).exceeded(found["corrupt"], found["records"])
    if limit is not None:
        raise TooManyCorrupt(
            f"{corrupt_sentence(found.asDict())}, and --max-corrupt is {limit}. Correct --schema, "
            "or set --max-corrupt 100%"
        )


def query_of(settings: AggregateSettings) -> str:
    """The query for `--by`, ordered by time for `date` and `hour`, and else by record count."""
    fields = [] if settings.schema is None else field_names(settings.schema)
    key, value = (quoted(own_name(name, fields)) for name in ("key", "value"))
    times = {own_name(name, fields) for name in _TIMES}
    groups = [quoted(name) for name in settings.by]
    selected = [f"string({group}) AS {group}" if group == key else group for group in groups]
    aggregates = [
        "count(*) AS records",
        f"coalesce(sum(octet_length({key})), 0) + coalesce(sum(octet_length({value})), 0) AS bytes",
    ]
    if key not in groups:
        aggregates.append(f"count(DISTINCT {key}) AS keys")
    order = groups if times & set(settings.by) else ["records DESC", *groups]
    return (
        f"SELECT {', '.join([*selected, *aggregates])} FROM {VIEW} "
        f"GROUP BY {', '.join(groups)} ORDER BY {', '.join(order)}"
    )


def _texts(found: DataFrame) -> DataFrame:
    """The rows as text from Spark, so that times are in the session's time zone."""
    from pyspark.sql import functions as f

    return found.toDF(*(str(index) for index in range(len(found.columns)))).select(
        *(f.col(str(index)).cast("string") for index in range(len(found.columns)))
    )


def _make_views(spark: SparkSession, settings: AggregateSettings, corrupt: Observation) -> None:
    view = _view(spark, settings, corrupt)
    view.createOrReplaceTempView(VIEW)
    topic = settings.topics[0]
    if len(settings.topics) == 1 and _IDENTIFIER.fullmatch(topic):
        view.createOrReplaceTempView(topic)


def _view(spark: SparkSession, settings: AggregateSettings, corrupt: Observation) -> DataFrame:
    from pyspark.sql import functions as f

    fields = [] if settings.schema is None else field_names(settings.schema)
    prefix = record_prefix(fields)
    frame = _read(spark, settings, prefix)
    time = f.col(f"{prefix}timestamp")
    if settings.since is not None:
        frame = frame.where(time >= _moment("--since", settings.since))
    if settings.until is not None:
        frame = frame.where(time < _moment("--until", settings.until))
    if settings.schema is not None:
        metrics = corrupt_metrics(prefix)
        if settings.max_corrupt is not None:
            _require_few_corrupt(frame, metrics, settings.max_corrupt)
        frame = frame.observe(corrupt, *metrics)
    columns = [f.col(prefix + name).alias(own_name(name, fields)) for name in _OWN]
    made = {"date": f.to_date(time), "hour": f.date_trunc("hour", time)}
    columns += [made[name].alias(own_name(name, fields)) for name in _TIMES]
    columns += [f.col(quoted(name)) for name in fields]
    return frame.select(*columns)


def record_prefix(fields: Sequence[str]) -> str:
    """What a record's own columns begin with in the read, and no field does."""
    if not fields:
        return ""
    prefix = "record_"
    while any(name.lower().startswith(prefix) for name in fields):
        prefix = f"_{prefix}"
    return prefix


def _read(spark: SparkSession, settings: AggregateSettings, prefix: str) -> DataFrame:
    reader = spark.read.format("millrace").options(**settings.read_options)
    if settings.schema is None:
        return reader.load()
    from pyspark.sql.types import ArrayType, StringType, StructType

    schema = StructType([*own_types(prefix), *StructType.fromJson(json.loads(settings.schema))])
    if CORRUPT_FIELDS not in schema.names:
        schema = schema.add(CORRUPT_FIELDS, ArrayType(StringType()))
    return reader.options(valueFormat="json", recordPrefix=prefix).schema(schema).load()


def own_types(prefix: str) -> StructType:
    """A record's own columns, with a prefix."""
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(ddl({prefix + name: COLUMNS[name] for name in _OWN}))
    assert isinstance(found, StructType)
    return found


def _moment(option: str, text: str) -> Column:
    from pyspark.sql import functions as f

    return f.timestamp_millis(f.lit(parse_time(option, text).timestamp_ms))


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return "`" + name.replace("`", "``") + "`"


def _is_number(kind: str) -> bool:
    return kind in ("byte", "short", "integer", "long", "float", "double", "decimal")
