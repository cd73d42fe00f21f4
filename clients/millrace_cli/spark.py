"""`millrace spark`: topics into files, files into topics, and figures of topics.

Owns the flags and what is printed. Light to import: what a command needs is imported when it runs,
so that `millrace --help` answers at once, with Spark or without.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from millrace_cli.exits import Exit, ended, run_blocking
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace_spark.pipeline import ImportSummary
    from millrace_spark.pipeline.progress import Progress

spark = typer.Typer(
    name="spark",
    help="Topics into files, files into topics, and figures of topics, with Spark.",
    no_args_is_help=True,
)
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Spark's master, or sc://HOST:PORT; else Spark runs here, on all cores.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]
SchemaFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Fields are columns: a JSON Schema, Spark's JSON, or `name type, ...`."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
DeadlineMs = Annotated[
    int, typer.Option("--deadline-ms", metavar="MS", help="Longest wait for the brokers.")
]


@spark.command("import")
def import_(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to land.")],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Where the files go.")],
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Whose offsets say how far it is; else DIR's own."),
    ] = None,
    file_format: Annotated[
        str, typer.Option("--format", "-f", metavar="parquet|orc|csv|json", help="Of the files.")
    ] = "parquet",
    partition_by: Annotated[
        str,
        typer.Option(
            metavar="COLUMN,...",
            help="A directory for each value: date, hour, topic, partition, a field of --schema.",
        ),
    ] = "",
    schema: SchemaFile = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="earliest|latest", help="Where a new topic begins."),
    ] = "earliest",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as records come, until ^C or SIGTERM.")
    ] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="With --follow: how often files appear.")
    ] = 10.0,
    max_records: Annotated[
        int | None, typer.Option(metavar="N", help="Land at most so many offsets at once.")
    ] = None,
    max_partition_bytes: Annotated[
        str, typer.Option(metavar="BYTES", help="Of the log in one task; k, m, g are understood.")
    ] = "128m",
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on without records that retention removed.")
    ] = False,
    deadline_ms: DeadlineMs = 30_000,
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Land what is new in topics as files in DIR: each record once, whatever is killed when.

    Goes on where the last run stopped, up to the end that the topics have now, and then commits
    the group's offsets. Run it again after any failure. In a pipe, prints one line: group, records,
    bytes, files, seconds, lag.
    """

    def work() -> Exit:
        from millrace_spark.pipeline.import_run import (
            ImportSettings,
            follow_topics,
            import_topics,
        )
        from millrace_spark.pipeline.schema_file import read_schema
        from millrace_spark.pipeline.spark_start import parse_conf

        parse_conf(tuple(conf or ()))
        settings = ImportSettings(
            tuple(topics),
            to,
            servers,
            group,
            file_format,
            _listed(partition_by),
            read_schema(schema),
            start,
            max_records,
            skip_lost,
            max_partition_bytes,
            deadline_ms,
        )
        progress = _progress(quiet)
        if not follow:
            starter = _Starter("millrace import", master, conf)
            _tell(import_topics(starter, settings, progress=progress))
            return Exit.OK
        stop = threading.Event()
        starter = _Starter("millrace import", master, conf, stop)
        starter.listen()
        _tell(follow_topics(starter, settings, stop=stop, every_s=every, progress=progress))
        return Exit.OK

    _run(work)


@spark.command("export")
def export(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Files that Spark can read.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Where the records go.")],
    file_format: Annotated[
        str, typer.Option("--format", "-f", metavar="parquet|orc|csv|json", help="Of the files.")
    ] = "parquet",
    key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What becomes the key; else none.")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="json|COLUMN",
            help="What becomes the value. Without it, imported records go back as they were, and "
            "other rows as JSON objects.",
        ),
    ] = None,
    schema: SchemaFile = None,
    create: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Create the topic with N partitions if need be."),
    ] = None,
    compression: Annotated[
        str, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="Of the batches sent.")
    ] = "none",
    deadline_ms: DeadlineMs = 30_000,
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Publish the rows of files: each at least once, and again if run again.

    In a pipe, prints one line: topic, records, seconds, records/s.
    """

    def work() -> Exit:
        from millrace_spark.pipeline.export_run import ExportSettings, export_files
        from millrace_spark.pipeline.schema_file import read_schema

        settings = ExportSettings(
            directory,
            to,
            servers,
            file_format,
            key,
            value,
            read_schema(schema),
            create,
            compression,
            deadline_ms,
        )
        starter = _Starter("millrace export", master, conf)
        done = export_files(starter, settings, progress=_progress(quiet))
        show(
            ("topic", "records #", "seconds #", "records/s #"),
            [(done.topic, done.records, f"{done.elapsed_s:.1f}", f"{done.records_per_s:.0f}")],
        )
        return Exit.OK

    _run(work)


@spark.command("aggregate")
def aggregate(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to count.")],
    by: Annotated[
        str,
        typer.Option(
            metavar="COLUMN,...",
            help="A row for each value: hour, date, key, topic, partition, a field of --schema.",
        ),
    ] = "hour",
    schema: SchemaFile = None,
    sql: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A query over `records` instead of --by."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From 2026-01-31T12:00:00Z on; or ms.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Up to then.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="All rows as files, too.")
    ] = None,
    file_format: Annotated[
        str, typer.Option("--format", "-f", metavar="parquet|orc|csv|json", help="Of the files.")
    ] = "parquet",
    limit: Annotated[int, typer.Option(metavar="N", help="Print at most so many rows.")] = 1_000,
    deadline_ms: DeadlineMs = 30_000,
    master: Master = None,
    conf: Conf = None,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Count records, bytes and distinct keys, or ask a query of your own.

    The view `records` has the columns key, value, topic, partition, offset, timestamp,
    timestampType, headers, date and hour (UTC), and with --schema the fields of the values.
    """

    def work() -> Exit:
        from millrace_spark.pipeline.aggregate_run import AggregateSettings
        from millrace_spark.pipeline.aggregate_run import aggregate as figures_of
        from millrace_spark.pipeline.schema_file import read_schema, read_text

        settings = AggregateSettings(
            tuple(topics),
            servers,
            _listed(by),
            read_schema(schema),
            None if sql is None else read_text(sql, option="--sql"),
            since,
            until,
            to,
            file_format,
            limit,
            deadline_ms,
        )
        found = figures_of(_Starter("millrace aggregate", master, conf), settings)
        columns = [f"{name} #" if name in found.numeric else name for name in found.columns]
        show(columns, found.rows)
        if found.is_cut:
            print(
                f"only the first {limit:,} rows; --limit shows more, --to DIR has all",
                file=sys.stderr,
            )
        return Exit.OK

    _run(work)


class _Starter:
    """Makes the session when it is needed; keeps ^C and SIGTERM for `stop` if there is one."""

    def __init__(
        self,
        app_name: str,
        master: str | None,
        conf: list[str] | None,
        stop: threading.Event | None = None,
    ) -> None:
        self._app_name = app_name
        self._master = master
        self._conf = tuple(conf or ())
        self._stop = stop

    def __call__(self) -> SparkSession:
        from millrace_spark.pipeline.spark_start import start_spark

        found = start_spark(self._app_name, master=self._master, conf=self._conf)
        # Spark has put a handler of its own there, which cancels the tasks.
        self.listen()
        return found

    def listen(self) -> None:
        """The first signal ends after the landing under way, the second at once."""
        if self._stop is not None:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        assert self._stop is not None
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._stop.set()


def _run(work: Callable[[], Exit]) -> NoReturn:
    def equipped() -> Exit:
        try:
            return work()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("numpy", "pyarrow", "pyspark"):
                raise
            return ended(Exit.USAGE, f"this needs {error.name}: pip install 'millrace[spark]'")

    run_blocking(equipped)


def _progress(is_quiet: bool) -> Progress:
    from millrace_cli.progress import StderrProgress
    from millrace_spark.pipeline.progress import NoProgress

    return NoProgress() if is_quiet else StderrProgress()


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _tell(done: ImportSummary) -> None:
    show(
        ("group", "records #", "bytes #", "files #", "seconds #", "records/s #", "lag #"),
        [
            (
                done.group,
                done.records,
                done.size_bytes,
                done.files,
                f"{done.elapsed_s:.1f}",
                f"{done.records_per_s:.0f}",
                done.lag,
            )
        ],
    )
