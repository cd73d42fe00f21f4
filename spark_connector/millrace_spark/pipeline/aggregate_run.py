"""Figures of topics: records, bytes and distinct keys by columns, or whatever a query asks.

Owns the view of records that a query sees, and the query that is made of `--by`. The reading is the
connector's.

The view is called `records`, and for one topic as the topic too. It has the columns of a read,
`date` and `hour` of the timestamp in UTC, and with a schema the fields of the values; a column of
the record that has a field's name is called `record_NAME`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.errors import ConfigError
from millrace_spark.bounds import parse_time
from millrace_spark.options import parse_read_options
from millrace_spark.pipeline.spark_tasks import error_of_task
from millrace_spark.pipeline.value_schema import field_names, own_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

VIEW = "records"
ROWS_MAX = 10_000
FORMATS = ("parquet", "orc", "csv", "json")
_OWN = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_TIMES = ("date", "hour")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


@dataclass(frozen=True, slots=True)
class AggregateSettings:
    """What to count. Raises `ConfigError` when it is made of what cannot work."""

    topics: tuple[str, ...]
    servers: str = "localhost:9092"
    by: tuple[str, ...] = ("hour",)
    """The columns whose values have a row each."""
    schema: str | None = None
    """Of the values, as `value_schema.parse_schema` makes it."""
    sql: str | None = None
    """A query over the view instead of `by`."""
    since: str | None = None
    """First time, included: ISO-8601 with its zone, or milliseconds."""
    until: str | None = None
    """Last time, excluded."""
    to: str | None = None
    """Where the rows go as files; None: nowhere."""
    file_format: str = "parquet"
    rows_max: int = 1_000
    """Rows that are returned; files have all."""
    deadline_ms: int = 30_000

    def __post_init__(self) -> None:
        for option, text in (("--since", self.since), ("--until", self.until)):
            if text is not None:
                parse_time(option, text)
        parse_read_options(self.read_options, is_stream=False)
        if self.file_format not in FORMATS:
            raise ConfigError(f"--format: {self.file_format!r} is none of {', '.join(FORMATS)}")
        if not 1 <= self.rows_max <= ROWS_MAX:
            raise ConfigError(f"--limit: from 1 to {ROWS_MAX:,}; --to DIR takes any number")
        if self.to is not None and Path(self.to).exists():
            raise ConfigError(f"--to {self.to} is there already; name a directory that is not")
        if self.sql is not None:
            if not self.sql.strip():
                raise ConfigError("--sql: the file has no query")
            return
        if not self.by:
            raise ConfigError("--by: name a column, as hour or key")
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

        All that is as late as `since` is behind where it begins; what is not is left to a filter,
        as is `until`: times in a log need not rise.
        """
        options = {
            "millrace.servers": self.servers,
            "subscribe": ",".join(self.topics),
            "includeHeaders": "true",
            "deadlineMs": str(self.deadline_ms),
        }
        return options if self.since is None else options | {"startingTimestamp": self.since}


@dataclass(frozen=True, slots=True)
class Figures:
    """The rows of an answer, at most as many as were asked for."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    numeric: frozenset[str]
    """Columns of numbers."""
    is_cut: bool
    """Whether there were more rows."""


def aggregate(spark: Callable[[], SparkSession], settings: AggregateSettings) -> Figures:
    """Counts, or asks the query. Raises `ConfigError`, `JobFailed`, and what the reader does."""
    running = spark()
    try:
        _make_views(running, settings)
        found = running.sql(settings.sql or query_of(settings))
        if settings.to is not None:
            # Twice the work for a query, and the same rows on screen and in the files.
            found = found.cache()
            found.write.format(settings.file_format).mode("errorifexists").save(settings.to)
        rows = _texts(found).limit(settings.rows_max + 1).collect()
        return Figures(
            tuple(found.columns),
            tuple(tuple(row) for row in rows[: settings.rows_max]),
            frozenset(each.name for each in found.schema if _is_number(each.dataType.typeName())),
            len(rows) > settings.rows_max,
        )
    except Exception as error:
        raise error_of_task(error) from error


def query_of(settings: AggregateSettings) -> str:
    """The query that `--by` stands for.

    Hours are in order of time; other values by how many records they have.
    """
    fields = [] if settings.schema is None else field_names(settings.schema)
    key, value = (quoted(own_name(name, fields)) for name in ("key", "value"))
    times = {own_name(name, fields) for name in _TIMES}
    groups = [quoted(name) for name in settings.by]
    told = [f"string({group}) AS {group}" if group == key else group for group in groups]
    figures = [
        "count(*) AS records",
        f"coalesce(sum(octet_length({key})), 0) + coalesce(sum(octet_length({value})), 0) AS bytes",
    ]
    if key not in groups:
        figures.append(f"count(DISTINCT {key}) AS keys")
    order = groups if times & set(settings.by) else ["records DESC", *groups]
    return (
        f"SELECT {', '.join([*told, *figures])} FROM {VIEW} "
        f"GROUP BY {', '.join(groups)} ORDER BY {', '.join(order)}"
    )


def _texts(found: DataFrame) -> DataFrame:
    """The rows as Spark writes them: times in the session's zone, and not in this machine's."""
    from pyspark.sql import functions as f

    return found.toDF(*(str(index) for index in range(len(found.columns)))).select(
        *(f.col(str(index)).cast("string") for index in range(len(found.columns)))
    )


def _make_views(spark: SparkSession, settings: AggregateSettings) -> None:
    frame = spark.read.format("millrace").options(**settings.read_options).load()
    view = _view(frame, settings)
    view.createOrReplaceTempView(VIEW)
    topic = settings.topics[0]
    if len(settings.topics) == 1 and _IDENTIFIER.fullmatch(topic):
        view.createOrReplaceTempView(topic)


def _view(frame: DataFrame, settings: AggregateSettings) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    time = f.col("timestamp")
    if settings.since is not None:
        frame = frame.where(time >= _moment("--since", settings.since))
    if settings.until is not None:
        frame = frame.where(time < _moment("--until", settings.until))
    fields = [] if settings.schema is None else field_names(settings.schema)
    columns = [f.col(name).alias(own_name(name, fields)) for name in _OWN]
    made = {"date": f.to_date(time), "hour": f.date_trunc("hour", time)}
    columns += [made[name].alias(own_name(name, fields)) for name in _TIMES]
    if settings.schema is None:
        return frame.select(*columns)
    struct = StructType.fromJson(json.loads(settings.schema))
    # Not the reader's own parsing, which has no other name for a record's column.
    value = f.from_json(f.col("value").cast("string"), struct)
    columns += [value.getField(name).alias(name) for name in fields]
    return frame.select(*columns)


def _moment(option: str, text: str) -> Column:
    from pyspark.sql import functions as f

    return f.timestamp_millis(f.lit(parse_time(option, text).timestamp_ms))


def quoted(name: str) -> str:
    """A column's name as SQL takes it."""
    return "`" + name.replace("`", "``") + "`"


def _is_number(kind: str) -> bool:
    return kind in ("byte", "short", "integer", "long", "float", "double", "decimal")
