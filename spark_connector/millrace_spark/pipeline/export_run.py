"""Files into a topic: what Spark reads of a directory is published by the connector's writer.

Owns how a row becomes a record. A record is written at least once: run twice, it publishes twice,
and a task that Spark tries again repeats what it had sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from millrace.config import ClientOptions, parse_servers
from millrace.errors import ConfigError, TopicAlreadyExists
from millrace.sync import Admin
from millrace_spark.patience import started
from millrace_spark.pipeline.imported_files import import_types
from millrace_spark.pipeline.partition_paths import MADE
from millrace_spark.pipeline.progress import Counts, NoProgress, Progress
from millrace_spark.pipeline.spark_tasks import error_of_task
from millrace_spark.schema import COLUMNS, ddl
from millrace_spark.write_options import parse_write_options
from millrace_spark.write_schema import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

FORMATS = ("parquet", "orc", "csv", "json")
_BYTES = ("binary", "string")
_IMPORT_COLUMNS = frozenset((*COLUMNS, *MADE))
_CSV = {"header": "true", "multiLine": "true", "escape": '"'}
"""RFC 4180, as imports write it: a quote in quotes is doubled, and lines may end within them."""


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """What to publish, and where. Raises `ConfigError` when it is made of what cannot work."""

    directory: str
    """Anything Spark reads: a directory, a file, a URI."""
    topic: str
    servers: str = "localhost:9092"
    file_format: str = "parquet"
    key: str | None = None
    """The column that becomes the key."""
    value: str | None = None
    """A column, or `json`: all columns as an object. None: records that were imported go back as
    they were, and other rows as JSON."""
    schema: str | None = None
    """Of the files, for csv and json; as `value_schema.parse_schema` makes it. With one, rows are
    not taken for records that were imported."""
    partitions: int | None = None
    """Create the topic with so many, if it is not there. None: it must be there."""
    compression: str = "none"
    deadline_ms: int = 30_000

    def __post_init__(self) -> None:
        parse_servers(self.servers)
        parse_write_options(self.write_options, is_stream=False)
        if self.file_format not in FORMATS:
            raise ConfigError(f"--format: {self.file_format!r} is none of {', '.join(FORMATS)}")
        if self.schema is not None and self.file_format not in ("csv", "json"):
            raise ConfigError(f"--schema: files of {self.file_format} have their own; leave it out")

    @property
    def write_options(self) -> dict[str, str]:
        """The options of the connector's writer."""
        return {
            "millrace.servers": self.servers,
            "topic": self.topic,
            "compression": self.compression,
            "deadlineMs": str(self.deadline_ms),
        }


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What a run has published."""

    topic: str
    records: int
    elapsed_s: float

    @property
    def records_per_s(self) -> float:
        """Over the whole run."""
        return self.records / max(self.elapsed_s, 1e-3)


def export_files(
    spark: Callable[[], SparkSession],
    settings: ExportSettings,
    *,
    progress: Progress | None = None,
) -> ExportSummary:
    """Publishes every row. Raises `ConfigError`, `JobFailed` and what the clients do."""
    began = time.monotonic()
    progress = progress or NoProgress()
    options: ClientOptions = {"client_id": "millrace-spark"}
    admin = started(lambda: Admin(settings.servers, **options), deadline_ms=settings.deadline_ms)
    with closing(admin):
        _require_topic(admin, settings)
        before = _end(admin, settings.topic)
        progress.message(f"exporting {settings.directory} to {settings.topic}")

        def poll() -> Counts:
            return Counts(_end(admin, settings.topic) - before)

        with progress.watching("exporting", poll, total=None):
            records = _published(spark(), settings)
    return ExportSummary(settings.topic, records, time.monotonic() - began)


def _published(spark: SparkSession, settings: ExportSettings) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    counted = Observation("export")
    try:
        frame = _records(spark, settings)
        frame = frame.observe(counted, f.count(f.lit(1)).alias("records"))
        writer = frame.write.format("millrace").mode("append")
        writer.options(**settings.write_options).save()
        return int(counted.get["records"])
    except Exception as error:
        raise error_of_task(error) from error


def _records(spark: SparkSession, settings: ExportSettings) -> DataFrame:
    """The rows as the writer takes them. Raises `ConfigError` for a column that is not there."""
    from pyspark.sql.types import StructType

    reader = spark.read.format(settings.file_format)
    if settings.file_format == "csv":
        reader = reader.options(**_CSV)
    if settings.schema is not None:
        reader = reader.schema(StructType.fromJson(json.loads(settings.schema)))
    frame = reader.load(settings.directory)
    imported = None
    if settings.value is None and settings.schema is None:
        imported = _import_in(reader, frame, settings)
    kinds = _kinds(frame if imported is None else imported)
    for option, name in (("--key", settings.key), ("--value", settings.value)):
        if name is not None and name not in kinds and (option, name) != ("--value", "json"):
            raise ConfigError(
                f"{option}: there is no column {name!r} in the files; there are {', '.join(kinds)}"
            )
    return _others(frame, settings) if imported is None else _imported(imported, settings)


def _import_in(
    reader: DataFrameReader, frame: DataFrame, settings: ExportSettings
) -> DataFrame | None:
    """The records of an import, with the types they had; None if the rows are no import's."""
    base, directories = _directories(frame)
    types = import_types(
        settings.file_format, _kinds(frame), directories.intersection(frame.columns)
    )
    if types is None and directories.difference(frame.columns):
        # One directory of an import: of the path that it is given, Spark takes no columns.
        reader = reader.option("basePath", base)
        kinds = _kinds(reader.load(settings.directory))
        types = import_types(settings.file_format, kinds, directories)
    if types is None:
        return None
    # No record may hold the text that stands for null: in CSV, quotes tell the two apart.
    reader = reader.options(mode="FAILFAST", nullValue=token_hex(16))
    return reader.schema(ddl(types)).load(settings.directory)


def _imported(frame: DataFrame, settings: ExportSettings) -> DataFrame:
    """Records as they were, of the columns of an import."""
    from pyspark.sql import functions as f

    kinds = _kinds(frame)
    key = f.col("key") if settings.key is None else _as_bytes(settings.key, kinds).alias("key")
    columns = [key, f.col("value")]
    if "headers" in kinds:
        columns.append(f.col("headers").cast(HEADERS))
    return frame.select(*columns)


def _others(frame: DataFrame, settings: ExportSettings) -> DataFrame:
    """Records of rows: of one column, or of all as an object."""
    from pyspark.sql import functions as f

    kinds = _kinds(frame)
    if settings.value in (None, "json"):
        value = f.to_json(f.struct(*(f.col(_quoted(name)) for name in kinds)))
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
    """The columns of an import that are not in the files but in their paths, `column=value`, and
    where these directories begin."""
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
    """A column's name as Spark takes it, where a dot would mean a field."""
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
    """How many records the topic has had."""
    partitions = admin.describe_topic(topic).partitions
    found = admin.list_offsets({(topic, each.partition): "latest" for each in partitions})
    return sum(each.offset for each in found.values())
