"""One run of `millrace sql`: from the text of the query to the output.

Owns the order of the steps, the progress, and the repetition of `--follow`. The engines compute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from millrace.errors import ConfigError
from millrace_cli.exits import Exit
from millrace_cli.sql import duckdb_engine
from millrace_cli.sql.query import Query, parse_query, topics_of
from millrace_cli.sql.result_formats import ResultFormat, numeric, text_rows, write
from millrace_cli.sql.rows import Rows
from millrace_cli.sql.topics import TopicTable, current_ends, known_topics, open_table
from millrace_cli.table import is_terminal, show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace._sync.topic_dataset import TopicDataset
    from millrace_spark.pipeline.progress import Counts, Progress

SCREEN_ROWS_MAX = 1_000
"""Rows of a table on a terminal, which is laid out as a whole."""


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """What to query, how, and where to write it. Raises `ConfigError`."""

    text: str
    servers: str
    schemas: Mapping[str, str]
    """Spark's JSON of the fields of a topic; that of the name "" is for the only topic."""
    start_ms: int | None = None
    end_ms: int | None = None
    format: ResultFormat = "table"
    to: Path | None = None
    may_read_files: bool = False
    spark: Callable[[], SparkSession] | None = None

    def __post_init__(self) -> None:
        if self.to is not None and self.format == "table":
            raise ConfigError("--to: needs --format csv, json or parquet")
        if self.to is not None and not self.to.absolute().parent.is_dir():
            raise ConfigError(f"--to {self.to}: the directory does not exist")
        if self.to is not None and self.to.is_dir():
            raise ConfigError(f"--to {self.to}: is a directory; name a file")
        if self.to is None and self.format == "parquet" and is_terminal():
            raise ConfigError("--format parquet: is no text for a terminal; name a file with --to")
        if self.spark is not None and self.may_read_files:
            raise ConfigError("--spark: Spark cannot see --allow-files; leave one of them out")


def run_once(settings: SqlSettings, progress: Progress) -> Exit:
    """Runs the query once."""
    query = parse_query(settings.text)
    topics = _topics(settings, query)
    _run(settings, query, topics, progress)
    return Exit.OK


def follow(
    settings: SqlSettings,
    progress: Progress,
    *,
    every_s: float,
    check_signals: Callable[[], None],
) -> Exit:
    """Runs the query again whenever its topics have new records, until an interrupt.

    `check_signals` raises `KeyboardInterrupt` for a signal whose own exception was dropped.
    """
    query = parse_query(settings.text)
    topics = _topics(settings, query)
    if not topics:
        raise ConfigError("--follow: the query names no topic that could grow")
    ends: dict[tuple[str, int], int] | None = None
    while True:
        now = current_ends(topics, settings.servers)
        if now != ends:
            if settings.to is None:
                _begin_result(is_first=ends is None)
            ends = now
            _run(settings, query, topics, progress)
            sys.stdout.flush()
        check_signals()
        time.sleep(every_s)


def _begin_result(*, is_first: bool) -> None:
    """Clears the terminal; in a pipe, an empty line follows each result but the last."""
    if is_terminal():
        from rich.console import Console

        Console().clear()
    elif not is_first:
        print()


def _topics(settings: SqlSettings, query: Query) -> list[str]:
    # With --allow-files, a table that is no topic is a file.
    named = () if settings.may_read_files else query.tables
    known = known_topics(settings.servers, named)
    topics = topics_of(query, known, may_name_files=settings.may_read_files)
    for name in settings.schemas:
        if name and name not in topics:
            raise ConfigError(f"--schema {name}=...: the query names no topic {name}")
    if "" in settings.schemas and len(topics) != 1:
        raise ConfigError("--schema: the query names several topics; give --schema TOPIC=FILE")
    return topics


def _run(settings: SqlSettings, query: Query, topics: list[str], progress: Progress) -> None:
    tables = [
        open_table(
            topic,
            settings.servers,
            start_ms=settings.start_ms,
            end_ms=settings.end_ms,
            schema=settings.schemas.get(topic, settings.schemas.get("")),
        )
        for topic in topics
    ]
    if settings.spark is not None:
        from millrace_cli.sql import spark_engine

        with spark_engine.running(
            query, tables, servers=settings.servers, spark=settings.spark
        ) as rows:
            _write(settings, rows, ExitStack())
        return
    datasets = {table.topic: table.dataset(settings.servers) for table in tables}
    total = sum(last - first for each in datasets.values() for first, last in each.ranges.values())
    reading = progress.watching("reading", lambda: _counts(datasets), total=total)
    try:
        with ExitStack() as display:
            display.enter_context(reading)
            with duckdb_engine.running(
                query, datasets, may_read_files=settings.may_read_files
            ) as rows:
                _write(settings, rows, display)
        # A warning stands behind the rows that it is about, also where both go to one pipe.
        sys.stdout.flush()
        for each in datasets.values():
            _warn_of_corrupt(each, progress)
    except ConfigError as error:
        raise _with_hint(error, tables) from None


def _counts(datasets: Mapping[str, TopicDataset]) -> Counts:
    from millrace_spark.pipeline.progress import Counts

    readers = [scan.reader for each in datasets.values() for scan in [*each.scans]]
    read = sum(reader.offsets_read for reader in readers)
    # A query reads parts of its topics, or some several times.
    corrupt = sum(scan.corrupt.records for each in datasets.values() for scan in [*each.scans])
    whole = sum(reader.offset_count for reader in readers)
    return Counts(read, read, corrupt=corrupt, total=whole)


def _warn_of_corrupt(dataset: TopicDataset, progress: Progress) -> None:
    """Tells of fields that are null because they do not fit, with the first record of each."""
    from millrace_spark.pipeline.corrupt_records import WARNINGS_MAX, example_sentence, total

    corrupt = total(scan.corrupt for scan in dataset.scans)
    for name, example in islice(corrupt.examples.items(), WARNINGS_MAX):
        progress.warning(f"{example_sentence(name, example)}; null in the result")


def _with_hint(error: ConfigError, tables: list[TopicTable]) -> ConfigError:
    if '" not found' in str(error) and any(table.is_inferred for table in tables):
        return ConfigError(
            f"{error}; the fields are those of the first records, --schema names others"
        )
    return error


def _write(settings: SqlSettings, rows: Rows, display: ExitStack) -> None:
    """Writes the result; ends the display of the progress before it writes to stdout."""
    if settings.to is not None:
        with _replaced(settings.to) as file:
            write(rows, settings.format, file)
        return
    # DuckDB reads all that an aggregate needs before it returns the first batch.
    first = list(islice(rows.batches, 1))
    display.close()
    rows = Rows(rows.schema, chain(first, rows.batches))
    if settings.format == "table":
        _show(rows)
    else:
        write(rows, settings.format, sys.stdout.buffer, for_terminal=is_terminal())


def _show(rows: Rows) -> None:
    columns = [
        f"{name} #" if is_number else name
        for name, is_number in zip(rows.schema.names, numeric(rows.schema), strict=True)
    ]
    cells = text_rows(rows)
    if not is_terminal():
        show(columns, cells)
        return
    show(columns, islice(cells, SCREEN_ROWS_MAX))
    if next(cells, None) is not None:
        print(f"only the first {SCREEN_ROWS_MAX:,} rows; --format csv writes all", file=sys.stderr)


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of another one when it is complete."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
