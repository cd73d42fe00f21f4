"""The export of files to a topic: Spark reads the files, and the connector's writer sends the rows.

Owns the conversion of a row to a record. Each row is sent at least once: a second run sends all
rows again, and a task that Spark retries repeats its rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from millrace.config import parse_servers
from millrace.errors import ConfigError, TopicAlreadyExists
from millrace.sync import Admin
from millrace_spark.options.credentials import NO_CREDENTIALS, Credentials
from millrace_spark.options.write_options import parse_write_options
from millrace_spark.pipeline.corrupt_metrics import CORRUPT_FIELDS
from millrace_spark.pipeline.executor_wait import executor_wait
from millrace_spark.pipeline.file_rows import corrupt_rows, corrupt_sentence, typed_rows
from millrace_spark.pipeline.imported_files import import_types
from millrace_spark.pipeline.partition_paths import DERIVED
from millrace_spark.pipeline.progress import Counts, NoProgress, Progress
from millrace_spark.pipeline.spark_tasks import error_of_task
from millrace_spark.reading.schema import COLUMNS, ddl
from millrace_spark.retry import start_admin
from millrace_spark.writing.write_schema import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, Observation, SparkSession

FORMATS = ("parquet", "orc", "csv", "json")
_BYTES = ("binary", "string")
_IMPORT_COLUMNS = frozenset((*COLUMNS, *DERIVED))
_CSV = {"header": "true", "multiLine": "true", "escape": '"'}
"""RFC 4180, as imports write it: quotes are doubled, and quoted cells may have line breaks."""
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""Spark itself writes milliseconds, and a time has microseconds."""


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """The files and the topic of an export. Raises `ConfigError`."""

    directory: str
    """A path that Spark reads: a directory, a file, a URI."""
    topic: str
    servers: str = "localhost:9092"
    file_format: str = "parquet"
    key: str | None = None
    """The column that becomes the key."""
    value: str | None = None
    """A column, or `json`: all columns as an object. None: imported records as they were, and other
    rows as JSON."""
    schema: str | None = None
    """The schema of csv and json files, from `value_schema.parse_schema`. With a schema, the export
    does not treat rows as imported records."""
    partitions: int | None = None
    """Partitions of a missing topic, which the export creates. None: the topic must exist."""
    compression: str = "none"
    deadline_ms: int = 30_000
    credentials: Credentials = NO_CREDENTIALS

    def __post_init__(self) -> None:
        parse_servers(self.servers)
        parse_write_options(self.write_options, is_stream=False)
        if self.file_format not in FORMATS:
            raise ConfigError(f"--format: {self.file_format!r} is none of {', '.join(FORMATS)}")
        if self.schema is not None and self.file_format not in ("csv", "json"):
            raise ConfigError(f"--schema: files of {self.file_format} have a schema; leave it out")

    @property
    def write_options(self) -> dict[str, str]:
        """The options of the connector's writer."""
        return {
            "millrace.servers": self.servers,
            "topic": self.topic,
            "compression": self.compression,
            "deadlineMs": str(self.deadline_ms),
            **self.credentials.options(),
        }


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """The totals of a run."""

    topic: str
    records: int
    elapsed_s: float
    corrupt: str | None = None
    """A sentence about the rows with values that do not fit the schema, if there are any."""

    @property
    def records_per_s(self) -> float:
        """The mean over the run."""
        return self.records / max(self.elapsed_s, 1e-3)


def export_files(
    spark: Callable[[], SparkSession],
    settings: ExportSettings,
    *,
    progress: Progress | None = None,
) -> ExportSummary:
    """Sends every row. Raises `ConfigError`, `JobFailed` and the errors of the clients."""
    began = time.monotonic()
    progress = progress or NoProgress()
    with closing(
        start_admin(settings.servers, settings.credentials, deadline_ms=settings.deadline_ms)
    ) as admin:
        _require_topic(admin, settings)
        before = _end(admin, settings.topic)
        progress.message(f"exporting {settings.directory} to {settings.topic}")

        def poll() -> Counts:
            return Counts(_end(admin, settings.topic) - before)

        with progress.watching("exporting", poll, total=None):
            running = spark()
            with executor_wait(running, progress.warning):
                records, corrupt = _send(running, settings)
    return ExportSummary(settings.topic, records, time.monotonic() - began, corrupt)


def _send(spark: SparkSession, settings: ExportSettings) -> tuple[int, str | None]:
    """Returns how many records were sent, and what was corrupt in their rows."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    counted, corrupt = Observation("export"), Observation("corrupt")
    try:
        if settings.schema is None:
            frame = _records(spark, settings)
        else:
            frame = _typed_records(spark, settings, settings.schema, corrupt)
        frame = frame.observe(counted, f.count(f.lit(1)).alias("records"))
        writer = frame.write.format("millrace").mode("append")
        writer.options(**settings.write_options).save()
        sentence = None if settings.schema is None else corrupt_sentence(corrupt.get)
        return int(counted.get["records"]), sentence
    except Exception as error:
        raise error_of_task(error) from error


def _records(spark: SparkSession, settings: ExportSettings) -> DataFrame:
    """The rows in the columns of the writer. Raises `ConfigError` for a missing column."""
    reader = spark.read.format(settings.file_format)
    if settings.file_format == "csv":
        reader = reader.options(**_CSV)
    frame = reader.load(settings.directory)
    imported = None if settings.value is not None else _imported_frame(reader, frame, settings)
    _require_columns(frame if imported is None else imported, settings)
    return (
        _row_records(frame, settings) if imported is None else _imported_records(imported, settings)
    )


def _typed_records(
    spark: SparkSession, settings: ExportSettings, schema: str, corrupt: Observation
) -> DataFrame:
    """The rows with the types of the schema, in the columns of the writer."""
    csv = _CSV if settings.file_format == "csv" else None
    frame = typed_rows(spark, settings.directory, schema, csv=csv)
    frame = frame.observe(corrupt, *corrupt_rows()).drop(CORRUPT_FIELDS)
    _require_columns(frame, settings)
    return _row_records(frame, settings)


def _require_columns(frame: DataFrame, settings: ExportSettings) -> None:
    names = frame.columns
    for option, name in (("--key", settings.key), ("--value", settings.value)):
        if name is not None and name not in names and (option, name) != ("--value", "json"):
            raise ConfigError(
                f"{option}: the files have no column {name!r}; they have {', '.join(names)}"
            )


def _imported_frame(
    reader: DataFrameReader, frame: DataFrame, settings: ExportSettings
) -> DataFrame | None:
    """The rows with the types of an import; None if an import did not write the files."""
    base, directories = _directories(frame)
    types = import_types(
        settings.file_format, _kinds(frame), directories.intersection(frame.columns)
    )
    if types is None and directories.difference(frame.columns):
        # A subdirectory of an import: Spark finds no columns in the path that it is given.
        reader = reader.option("basePath", base)
        kinds = _kinds(reader.load(settings.directory))
        types = import_types(settings.file_format, kinds, directories)
    if types is None:
        return None
    # A random text for null, because no record may have it: in CSV an empty cell is null, and
    # empty quotes are an empty text.
    reader = reader.options(mode="FAILFAST", nullValue=token_hex(16))
    return reader.schema(ddl(types)).load(settings.directory)


def _imported_records(frame: DataFrame, settings: ExportSettings) -> DataFrame:
    """The records of the columns of an import, as they were."""
    from pyspark.sql import functions as f

    kinds = _kinds(frame)
    key = f.col("key") if settings.key is None else _as_bytes(settings.key, kinds).alias("key")
    columns = [key, f.col("value")]
    if "headers" in kinds:
        columns.append(f.col("headers").cast(HEADERS))
    return frame.select(*columns)


def _row_records(frame: DataFrame, settings: ExportSettings) -> DataFrame:
    """A record for each row: of one column, or of all columns as an object."""
    from pyspark.sql import functions as f

    kinds = _kinds(frame)
    if settings.value in (None, "json"):
        value = f.to_json(f.struct(*(f.col(_quoted(name)) for name in kinds)), _JSON)
    else:
        value = _as_bytes(settings.value, kinds)
    columns = [value.alias("value")]
    if settings.key is not None:
        columns.append(_as_bytes(settings.key, kinds).alias("key"))
    return frame.select(*columns)


def _kinds(frame: DataFrame) -> dict[str, str]:
    """The Spark type of each column."""
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def _directories(frame: DataFrame) -> tuple[str, set[str]]:
    """The root of the directories `column=value`, and the columns of an import in their names."""
    names: set[str] = set()
    for path in frame.inputFiles()[:1]:
        *parts, _ = unquote(path).split("/")
        while "=" in parts[-1] and (name := parts[-1].partition("=")[0]) in _IMPORT_COLUMNS:
            names.add(name)
            parts.pop()
        return "/".join(parts), names
    return "", names


def _as_bytes(name: str, kinds: dict[str, str]) -> Any:
    from pyspark.sql import functions as f

    column = f.col(_quoted(name))
    return column if kinds[name] in _BYTES else column.cast("string")


def _quoted(name: str) -> str:
    """A column's name in backquotes, because Spark takes a dot for a field."""
    return "`" + name.replace("`", "``") + "`"


def _require_topic(admin: Admin, settings: ExportSettings) -> None:
    if settings.partitions is not None:
        try:
            admin.create_topic(settings.topic, partitions=settings.partitions)
        except TopicAlreadyExists:
            return
    else:
        admin.describe_topic(settings.topic)


def _end(admin: Admin, topic: str) -> int:
    """The sum of the end offsets of a topic."""
    partitions = admin.describe_topic(topic).partitions
    found = admin.list_offsets({(topic, each.partition): "latest" for each in partitions})
    return sum(each.offset for each in found.values())
