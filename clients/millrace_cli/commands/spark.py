"""`millrace spark`: import topics into files, export files to topics, and topic statistics.

Owns the flags and the output; `millrace_spark.pipeline` does the work. A command imports its needs
when it runs, so that `millrace --help` starts fast and needs no Spark.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from millrace_cli.client_identity import identity
from millrace_cli.exits import Exit, ended, run_blocking
from millrace_cli.json_output import Json
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.spark_results import show_export, show_import, show_statistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace_spark.options.credentials import Credentials
    from millrace_spark.pipeline.progress import Progress

spark = typer.Typer(
    name="spark",
    help="Import topics into files, export files to topics, count records, with Spark.",
    no_args_is_help=True,
)
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Spark's master, or sc://HOST:PORT; by default, Spark runs here, on all cores.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]
SchemaFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|TEXT",
        help="Schema of the values: JSON Schema, Spark's JSON, or `name type, ...`.",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print the result and warnings only, no line of Spark."),
]
DeadlineMs = Annotated[
    int, typer.Option("--deadline-ms", metavar="MS", help="Longest wait for the brokers.")
]


Group = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Group for the offsets; by default, DIR's own."),
]
FileFormat = Annotated[
    str, typer.Option("--format", "-f", metavar="parquet|orc|csv|json", help="Format of the files.")
]
PartitionBy = Annotated[
    str,
    typer.Option(
        metavar="COLUMN,...",
        help="Directories by the values of: date, hour, topic, partition, a field of --schema.",
    ),
]
From = Annotated[
    str,
    typer.Option("--from", metavar="earliest|latest", help="Start of a new topic."),
]
Follow = Annotated[bool, typer.Option("--follow", help="Import new records until ^C or SIGTERM.")]
Every = Annotated[
    float, typer.Option(metavar="SECONDS", help="With --follow: seconds between imports.")
]
MaxRecords = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Most offsets of this run; with --follow, of each import of it."
    ),
]
MaxCorrupt = Annotated[
    str | None,
    typer.Option(
        metavar="N|N%",
        help="With --schema: most records of an import with a value that does not fit; by default "
        "not all of the first import into DIR.",
    ),
]
MaxPartitionBytes = Annotated[
    str, typer.Option(metavar="BYTES", help="Bytes of the log for one task; with k, m or g.")
]
SkipLost = Annotated[bool, typer.Option("--skip-lost", help="Skip records that retention removed.")]


Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to import.")]


@spark.command("import")
def import_(
    topics: Topics,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Directory of the files.")],
    group: Group = None,
    file_format: FileFormat = "parquet",
    partition_by: PartitionBy = "",
    schema: SchemaFile = None,
    start: From = "earliest",
    follow: Follow = False,
    every: Every = 10.0,
    max_records: MaxRecords = None,
    max_corrupt: MaxCorrupt = None,
    max_partition_bytes: MaxPartitionBytes = "128m",
    skip_lost: SkipLost = False,
    deadline_ms: DeadlineMs = 30_000,
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Import new records of topics as files in DIR, each record exactly once.

    Continues where the last run stopped, up to the current ends of the topics, and commits the
    group's offsets. After any failure, run it again. In a pipe, prints one line: group, records,
    bytes, files, seconds, records/s, lag, corrupt records, corrupt fields.
    """

    def work() -> Exit:
        from millrace_spark.pipeline import ImportSettings, follow_topics, import_topics
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
            max_corrupt,
            _credentials(),
        )
        progress, stop = _progress(quiet), threading.Event() if follow else None
        starter = _Starter("millrace import", master, conf, progress, stop)
        if stop is None:
            summary = import_topics(starter, settings, progress=progress)
        else:
            summary = follow_topics(starter, settings, stop=stop, every_s=every, progress=progress)
        show_import(summary, as_json=as_json)
        return Exit.OK

    _run(work)


Key = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of the key; by default, no key.")
]
Value = Annotated[
    str | None,
    typer.Option(
        metavar="json|COLUMN",
        help="Column of the value, or json for all columns. By default, imported records as they "
        "were, and other rows as JSON objects.",
    ),
]
Create = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Create a missing topic with N partitions."),
]
Compression = Annotated[
    str, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="Compression of batches.")
]


@spark.command("export")
def export(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Path that Spark can read.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Topic of the records.")],
    file_format: FileFormat = "parquet",
    key: Key = None,
    value: Value = None,
    schema: SchemaFile = None,
    create: Create = None,
    compression: Compression = "none",
    deadline_ms: DeadlineMs = 30_000,
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Send the rows of files to a topic, each at least once. A second run sends them again.

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
            _credentials(),
        )
        progress = _progress(quiet)
        starter = _Starter("millrace export", master, conf, progress)
        done = export_files(starter, settings, progress=progress)
        show_export(done, as_json=as_json)
        if done.corrupt is not None:
            progress.warning(done.corrupt)
        return Exit.OK

    _run(work)


By = Annotated[
    str,
    typer.Option(
        metavar="COLUMN,...",
        help="Columns to group by: hour, date, key, topic, partition, a field of --schema.",
    ),
]
Sql = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A query over `records` instead of --by."),
]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Earliest time: 2026-01-31T12:00:00Z, or ms.")
]
MaxCorruptCounted = Annotated[
    str | None,
    typer.Option(
        "--max-corrupt",
        metavar="N|N%",
        help="With --schema: most records with a value that does not fit, counted before the query "
        "runs; by default any number, with a warning.",
    ),
]
ToFiles = Annotated[
    str | None, typer.Option("--to", metavar="DIR", help="Write all rows as files, too.")
]


@spark.command("aggregate")
def aggregate(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topics to count.")],
    by: By = "hour",
    schema: SchemaFile = None,
    sql: Sql = None,
    since: Since = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Latest time, excluded.")
    ] = None,
    to: ToFiles = None,
    file_format: FileFormat = "parquet",
    limit: Annotated[int, typer.Option(metavar="N", help="Most rows to print.")] = 1_000,
    max_corrupt: MaxCorruptCounted = None,
    deadline_ms: DeadlineMs = 30_000,
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Count records, bytes and distinct keys, or run a query.

    The view `records` has the columns key, value, topic, partition, offset, timestamp,
    timestampType, headers, date and hour (UTC), and with --schema the fields of the values.
    """

    def work() -> Exit:
        from millrace_spark.pipeline.aggregate_run import AggregateSettings
        from millrace_spark.pipeline.aggregate_run import aggregate as aggregate_topics
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
            max_corrupt,
            _credentials(),
        )
        progress = _progress(quiet)
        starter = _Starter("millrace aggregate", master, conf, progress)
        found = aggregate_topics(starter, settings, progress=progress)
        show_statistics(found, as_json=as_json)
        if found.corrupt is not None:
            progress.warning(found.corrupt)
        if found.is_cut:
            print(
                f"only the first {limit:,} rows; give a larger --limit, or --to DIR for all rows",
                file=sys.stderr,
            )
        return Exit.OK

    _run(work)


def _credentials() -> Credentials:
    """The user of the environment: the clients of the tasks log in as that user, too."""
    from millrace_spark.options.credentials import credentials_of

    return credentials_of(identity())


class _Starter:
    """Starts the session for the first job; with `stop`, handles ^C and SIGTERM."""

    def __init__(
        self,
        app_name: str,
        master: str | None,
        conf: list[str] | None,
        progress: Progress,
        stop: threading.Event | None = None,
    ) -> None:
        self._app_name = app_name
        self._master = master
        self._conf = tuple(conf or ())
        self._progress = progress
        self._stop = stop
        self._listen()

    def __call__(self) -> SparkSession:
        from millrace_spark.pipeline.spark_output import SparkOutput
        from millrace_spark.pipeline.spark_start import is_local, start_spark

        if not is_local(self._master):
            self._progress.message(f"connecting to {self._master}")
        found = start_spark(
            self._app_name,
            master=self._master,
            conf=self._conf,
            output=SparkOutput(self._progress.message),
        )
        # Spark replaces the handler of ^C by its own, which disturbs the call that is under way.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._listen()
        return found

    def _listen(self) -> None:
        """The first signal ends the command after the current batch, the second one at once."""
        if self._stop is not None:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        assert self._stop is not None
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._stop.set()


def _run(work: Callable[[], Exit]) -> NoReturn:
    def with_spark() -> Exit:
        from millrace_spark.pipeline.errors import TooManyCorrupt

        try:
            return work()
        except TooManyCorrupt as error:
            return ended(Exit.INPUT, error)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("numpy", "pyarrow", "pyspark"):
                raise
            return ended(Exit.USAGE, f"this needs {error.name}: pip install 'millrace[spark]'")

    run_blocking(with_spark)


def _progress(is_quiet: bool) -> Progress:
    from millrace_cli.progress import StderrProgress, StderrWarnings

    return StderrWarnings() if is_quiet else StderrProgress()


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
