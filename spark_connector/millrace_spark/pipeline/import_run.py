"""The import of topics into files: once, or repeatedly until the caller stops it.

    from millrace_spark import session
    from millrace_spark.pipeline import ImportSettings, import_topics

    print(import_topics(session, ImportSettings(("clicks",), to="/data/clicks")))

Owns the settings with their checks, and the summary. `importer` has the steps.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace._arrow.corrupt_counts import NOTHING_CORRUPT, CorruptCounts
from millrace.errors import ConfigError
from millrace_spark.options.credentials import NO_CREDENTIALS, Credentials
from millrace_spark.pipeline.corrupt_records import CorruptLimit
from millrace_spark.pipeline.corrupt_records import warnings as corrupt_warnings
from millrace_spark.pipeline.directory import ImportDirectory
from millrace_spark.pipeline.file_formats import FORMATS
from millrace_spark.pipeline.import_plan import ImportPolicy
from millrace_spark.pipeline.importer import Importer
from millrace_spark.pipeline.ledger import FileLayout, ImportBatch, Ledger
from millrace_spark.pipeline.partition_paths import partition_columns
from millrace_spark.pipeline.progress import NoProgress, Progress, import_counts
from millrace_spark.pipeline.range_task import RangeResult
from millrace_spark.pipeline.record_columns import file_columns, value_fields
from millrace_spark.pipeline.spark_tasks import SparkTasks
from millrace_spark.pipeline.topic_log import TopicLog
from millrace_spark.pipeline.value_schema import require_distinct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP_CHARS_MAX = 200
TOPICS_MAX = 1_000
EVERY_S_MIN = 0.1
EVERY_S_MAX = 86_400


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """The topics, the directory and the layout of an import. Raises `ConfigError`."""

    topics: tuple[str, ...]
    to: str
    servers: str = "localhost:9092"
    group: str | None = None
    """None: the group of the directory; for a new directory, a name from topics and directory."""
    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    schema: str | None = None
    """The schema of the values, from `value_schema.parse_schema`. None: values stay bytes."""
    start: str = "earliest"
    """`earliest` or `latest`: the start of a topic that is new to directory and group."""
    records_max: int | None = None
    """Most offsets of a run; with `follow_topics`, of each batch."""
    skip_lost: bool = False
    """Skip records that are gone."""
    max_partition_bytes: str = "128m"
    """Bytes of the log that one task reads."""
    deadline_ms: int = 30_000
    corrupt_max: str | None = None
    """Most corrupt records of a batch, `N` or `N%`; None: not all of the first batch of a
    directory."""
    credentials: Credentials = NO_CREDENTIALS

    def __post_init__(self) -> None:
        if not self.topics or not all(self.topics):
            raise ConfigError("name a topic to import")
        if len(self.topics) != len(set(self.topics)) or len(self.topics) > TOPICS_MAX:
            raise ConfigError(f"name each topic once, and at most {TOPICS_MAX}")
        if self.file_format not in FORMATS:
            raise ConfigError(f"--format: {self.file_format!r} is none of {', '.join(FORMATS)}")
        if self.start not in ("earliest", "latest"):
            raise ConfigError(f"--from: {self.start!r} is neither earliest nor latest")
        if self.records_max is not None and self.records_max < 1:
            raise ConfigError("--max-records: at least 1")
        if self.schema is not None:
            fields = value_fields(self.schema)
            require_distinct(file_columns(FileLayout(self.file_format, (), self.schema)))
            if self.file_format == "csv":
                for field in fields:
                    if field.type.num_fields:
                        raise ConfigError(
                            f"--format csv: {field.name} is {field.type}, and a cell of CSV has "
                            "one value; use another format"
                        )
        _ = self.layout, self.corrupt_limit

    @property
    def corrupt_limit(self) -> CorruptLimit:
        """The bound on corrupt records."""
        return CorruptLimit.parse(self.corrupt_max)

    @property
    def layout(self) -> FileLayout:
        """The format and the columns of the files."""
        bare = FileLayout(self.file_format, (), self.schema)
        columns = partition_columns(self.partition_by, file_columns(bare))
        return FileLayout(self.file_format, columns, self.schema)


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The totals of a run, including a batch that it finished for an earlier run."""

    group: str
    batches: int
    records: int
    size_bytes: int
    files: int
    elapsed_s: float
    lag: int
    """Offsets that were appended after the plan of the last batch, or are left for another run."""
    corrupt: CorruptCounts = NOTHING_CORRUPT
    """Records with values that do not fit the schema."""

    @property
    def records_per_s(self) -> float:
        """The mean over the run."""
        return self.records / max(self.elapsed_s, 1e-3)


def import_topics(
    spark: Callable[[], SparkSession],
    settings: ImportSettings,
    *,
    progress: Progress | None = None,
) -> ImportSummary:
    """Imports all new records of the topics, up to their current ends.

    Finishes the batch of an earlier run first. After any failure, run it again: each record is
    imported once. `spark` returns the session; it is called only if there are records. Raises
    `ConfigError`, `ImportRefused`, `DirectoryInUse`, `DataLost`, `RecordUnfit`, `JobFailed`,
    `OSError`, and the errors of the clients.
    """
    return _run(spark, settings, progress or NoProgress(), lambda: False)


def follow_topics(
    spark: Callable[[], SparkSession],
    settings: ImportSettings,
    *,
    stop: threading.Event,
    every_s: float = 10.0,
    progress: Progress | None = None,
) -> ImportSummary:
    """Imports every `every_s` seconds until `stop` is set; finishes the current batch.

    Raises the errors of `import_topics`.
    """
    if not EVERY_S_MIN <= every_s <= EVERY_S_MAX:
        raise ConfigError(f"--every: from {EVERY_S_MIN} to {EVERY_S_MAX:,} seconds")
    return _run(spark, settings, progress or NoProgress(), lambda: not stop.wait(every_s))


def _run(
    spark: Callable[[], SparkSession],
    settings: ImportSettings,
    progress: Progress,
    is_again: Callable[[], bool],
) -> ImportSummary:
    started = time.monotonic()
    directory = ImportDirectory(settings.to)
    log = TopicLog(
        settings.servers,
        settings.deadline_ms,
        settings.max_partition_bytes,
        settings.skip_lost,
        settings.credentials,
    )
    policy = ImportPolicy(settings.start == "latest", settings.skip_lost, settings.records_max)
    fresh = Ledger(
        secrets.token_hex(8), settings.group or _default_group(settings, directory), settings.layout
    )
    with directory.locked():
        importer = Importer.open(
            directory,
            log,
            SparkTasks(spark, directory, log, progress),
            fresh=fresh,
            group=settings.group,
        )
        group = importer.ledger.group
        progress.message(f"group {group} into {directory}")
        importer.clean_up()
        results = []
        batch = importer.ledger.batch
        if batch is not None:
            progress.message(f"finishing the batch of an earlier run: {len(batch):,} offsets")
            results.append(_write_batch(importer, directory, batch, settings, progress))
        while True:
            batch = importer.begin_batch(settings.topics, policy)
            if batch is not None:
                results.append(_write_batch(importer, directory, batch, settings, progress))
            if not is_again():
                break
        lag = importer.lag(settings.topics)
    done = RangeResult.sum_of(results)
    if lag and settings.records_max is not None:
        progress.message(f"--max-records: {lag:,} offsets are left for another run")
    return ImportSummary(
        group,
        len(results),
        done.records,
        done.size_bytes,
        done.files,
        time.monotonic() - started,
        lag,
        done.corrupt,
    )


def _write_batch(
    importer: Importer,
    directory: ImportDirectory,
    batch: ImportBatch,
    settings: ImportSettings,
    progress: Progress,
) -> RangeResult:
    counts = import_counts(directory, batch)
    with progress.watching("importing", counts, total=len(batch)):
        done = importer.write_batch(settings.corrupt_limit)
    for line in corrupt_warnings(done.corrupt, done.records):
        progress.warning(line)
    if done.empty_fields:
        progress.warning(
            f"no record has a value of {', '.join(done.empty_fields)}: are the names in --schema "
            "those of the values?"
        )
    return done


def _default_group(settings: ImportSettings, directory: ImportDirectory) -> str:
    """A group name that is the same for the same topics and directory."""
    name = f"import-{'-'.join(settings.topics)}-{directory.path.name}"
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:GROUP_CHARS_MAX]
