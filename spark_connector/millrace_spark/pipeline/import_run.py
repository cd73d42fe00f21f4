"""Imports as a program calls them: one run, or one after another until it is told to stop.

    from millrace_spark import session
    from millrace_spark.pipeline import ImportSettings, import_topics

    print(import_topics(session, ImportSettings(("clicks",), to="/data/clicks")))

Owns the settings and their checks, and the summary. The steps are `importer`'s.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.errors import ConfigError
from millrace_spark.pipeline.directory import LandingDirectory
from millrace_spark.pipeline.file_formats import FORMATS
from millrace_spark.pipeline.importer import Importer
from millrace_spark.pipeline.landing_plan import Wishes
from millrace_spark.pipeline.landing_task import Landed
from millrace_spark.pipeline.ledger import Landing, Ledger, Shape
from millrace_spark.pipeline.partition_paths import partition_columns
from millrace_spark.pipeline.progress import NoProgress, Progress, import_counts
from millrace_spark.pipeline.record_columns import landed_columns, value_fields
from millrace_spark.pipeline.spark_tasks import SparkTasks
from millrace_spark.pipeline.topic_log import TopicLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP_CHARS_MAX = 200
TOPICS_MAX = 1_000
EVERY_S_MIN = 0.1
EVERY_S_MAX = 86_400


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """What to import, and into what. Raises `ConfigError` when it is made of what cannot work."""

    topics: tuple[str, ...]
    to: str
    servers: str = "localhost:9092"
    group: str | None = None
    """None: the one the directory has, or else a name made of topics and directory."""
    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    schema: str | None = None
    """Of the values, as `value_schema.parse_schema` makes it; None: values stay bytes."""
    start: str = "earliest"
    """`earliest` or `latest`: where a topic begins that neither directory nor group know."""
    records_max: int | None = None
    """Offsets of one landing."""
    skip_lost: bool = False
    """Go on behind records that are gone."""
    max_partition_bytes: str = "128m"
    """Bytes of the log that one task reads."""
    deadline_ms: int = 30_000

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
            seen: set[str] = set()
            for name in map(str.lower, landed_columns(Shape(self.file_format, (), self.schema))):
                if name in seen:
                    raise ConfigError(
                        f"--schema: there is another column {name}, and case is no difference to "
                        "Spark; leave the field out"
                    )
                seen.add(name)
            if self.file_format == "csv":
                for field in fields:
                    if field.type.num_fields:
                        raise ConfigError(
                            f"--format csv: {field.name} is {field.type}, and a cell of CSV has "
                            "one value; choose another format"
                        )
        _ = self.shape

    @property
    def shape(self) -> Shape:
        """What the files are to look like."""
        bare = Shape(self.file_format, (), self.schema)
        columns = partition_columns(self.partition_by, landed_columns(bare))
        return Shape(self.file_format, columns, self.schema)


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What a run has landed, what an earlier one had left among it."""

    group: str
    landings: int
    records: int
    size_bytes: int
    files: int
    elapsed_s: float
    lag: int
    """Offsets that came after the run had planned its last landing."""

    @property
    def records_per_s(self) -> float:
        """Over the whole run."""
        return self.records / max(self.elapsed_s, 1e-3)


def import_topics(
    spark: Callable[[], SparkSession],
    settings: ImportSettings,
    *,
    progress: Progress | None = None,
) -> ImportSummary:
    """Lands what the topics have now and the directory has not, and what an earlier run left.

    Run again after any failure: each record lands once. `spark` makes the session, and is called
    only when there is something to land. Raises `ConfigError`, `ImportRefused`, `DirectoryInUse`,
    `DataLost`, `RecordUnfit`, `JobFailed`, `OSError`, and what the clients do.
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
    """Imports every `every_s` seconds until `stop` is set; ends after the landing under way.

    Raises what `import_topics` does, at the first failure that waiting does not cure.
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
    directory = LandingDirectory(settings.to)
    log = TopicLog(
        settings.servers, settings.deadline_ms, settings.max_partition_bytes, settings.skip_lost
    )
    wishes = Wishes(settings.start == "latest", settings.skip_lost, settings.records_max)
    fresh = Ledger(
        secrets.token_hex(8), settings.group or _default_group(settings, directory), settings.shape
    )
    with directory.locked():
        importer = Importer.opened(
            directory,
            log,
            SparkTasks(spark, directory, log),
            fresh=fresh,
            group=settings.group,
        )
        group = importer.ledger.group
        progress.message(f"group {group} into {directory}")
        importer.clear()
        landed = []
        landing = importer.ledger.landing
        if landing is not None:
            progress.message(f"finishing what a run has left: {len(landing):,} offsets")
            landed.append(_watched(importer, directory, landing, progress))
        while True:
            landing = importer.plan(settings.topics, wishes)
            if landing is not None:
                landed.append(_watched(importer, directory, landing, progress))
            if not is_again():
                break
        lag = importer.lag(settings.topics)
    return ImportSummary(
        group,
        len(landed),
        sum(each.records for each in landed),
        sum(each.size_bytes for each in landed),
        sum(each.files for each in landed),
        time.monotonic() - started,
        lag,
    )


def _watched(
    importer: Importer, directory: LandingDirectory, landing: Landing, progress: Progress
) -> Landed:
    counts = import_counts(directory, landing)
    with progress.watching("importing", counts, total=len(landing)):
        return importer.land()


def _default_group(settings: ImportSettings, directory: LandingDirectory) -> str:
    """The same for the same topics and directory, so that a schedule need not name it."""
    name = f"import-{'-'.join(settings.topics)}-{directory.path.name}"
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:GROUP_CHARS_MAX]
