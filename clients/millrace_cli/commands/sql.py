"""`millrace sql`: a query over topics.

Owns the flags; `millrace_cli.sql` does the work. The command imports its needs when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from millrace_cli.exits import Exit, ended, run_blocking, until_signal
from millrace_cli.servers import DEFAULT_SERVERS, Servers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from millrace_cli.sql.run import SqlSettings

ResultFormat = Literal["table", "csv", "json", "parquet"]
Text = Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT, or - for stdin.")]
Format = Annotated[
    ResultFormat,
    typer.Option("--format", "-f", help="Format of the result; json is an object in a line."),
]
To = Annotated[
    Path | None,
    typer.Option(
        "--to", metavar="FILE", help="Write the result to FILE, which appears when it is complete."
    ),
]
Schema = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[TOPIC=]FILE",
        help="Schema of a topic's values: JSON Schema, Spark's JSON, or `name type, ...`; may be "
        "repeated.  [default: inferred]",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Begin at the first record at or after TIME, ISO 8601 or ms."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="End before the first record at or after TIME."),
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Run again when there are new records, until ^C.")
]
Every = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0.1, help="With --follow: seconds between looks."),
]
AllowFiles = Annotated[
    bool,
    typer.Option(
        "--allow-files", help="Let the query read files and the network, as read_csv('x.csv') does."
    ),
]
Spark = Annotated[bool, typer.Option("--spark", help="Run on Spark instead of DuckDB.")]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="With --spark: Spark's master.  [default: this machine]"),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="With --spark: a setting of Spark; may be repeated."
    ),
]
ResultJson = Annotated[bool, typer.Option("--json", "-J", help="The same as --format json.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress, only warnings.")]


def sql(
    text: Text,
    format_: Format = "table",
    to: To = None,
    schema: Schema = None,
    start: From = None,
    until: Until = None,
    follow: Follow = False,
    every: Every = 2.0,
    allow_files: AllowFiles = False,
    spark: Spark = False,
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
    as_json: ResultJson = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Query topics with SQL: each is a table of its records, up to its end at the start.

    \b
    Columns of a topic:
      key, value            bytes
      topic, partition, "offset" (a keyword of SQL: quote it), timestamp (UTC), timestampType
      headers               list of key and value
      and the fields of values that are JSON objects. A field that a value lacks, or that has
      another type, is null. A record's column with the name of a field is called record_NAME.

    Without --schema the fields are inferred from the first 1,000 records: whole numbers are long,
    others double, texts stay texts.

    Reads only the columns and, where the query has conditions on partition, "offset" or timestamp,
    only the offsets that it needs. A time limits the beginning of a read only, because later
    records may have earlier times; --until limits the end.

    In a pipe, a table is tab-separated lines without headings. --follow reads all that the query
    needs again at each refresh; in a pipe, an empty line is between two results.

    Needs pip install 'millrace[sql]', with --spark also 'millrace[spark]'.
    """

    def work(check_signals: Callable[[], None]) -> Exit:
        from millrace_cli.sql.run import SqlSettings

        if follow and spark:
            raise typer.BadParameter("--follow: runs on DuckDB; leave --spark out")
        if not spark and (master is not None or conf):
            raise typer.BadParameter("--master, --conf: need --spark")
        settings = SqlSettings(
            _text(text),
            servers,
            _schemas(schema or []),
            *(_time_ms("--from", start), _time_ms("--until", until)),
            _format(format_, as_json=as_json),
            to,
            allow_files,
            _starter(master, conf) if spark else None,
        )
        return _query(settings, every if follow else None, check_signals, is_quiet=quiet)

    run_blocking(lambda: until_signal(lambda check: _with_packages(lambda: work(check))))


def _query(
    settings: SqlSettings,
    every_s: float | None,
    check_signals: Callable[[], None],
    *,
    is_quiet: bool,
) -> Exit:
    from millrace_cli.progress import StderrProgress, StderrWarnings
    from millrace_cli.sql.run import follow, run_once

    if every_s is not None:
        return follow(settings, StderrWarnings(), every_s=every_s, check_signals=check_signals)
    return run_once(settings, StderrWarnings() if is_quiet else StderrProgress())


def _with_packages(work: Callable[[], Exit]) -> Exit:
    try:
        return work()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        extra = {"duckdb": "sql", "numpy": "sql", "pyarrow": "sql", "pyspark": "spark"}
        if name not in extra:
            raise
        return ended(Exit.USAGE, f"this needs {name}: pip install 'millrace[{extra[name]}]'")


def _format(chosen: ResultFormat, *, as_json: bool) -> ResultFormat:
    if as_json and chosen not in ("table", "json"):
        raise typer.BadParameter(f"--json excludes --format {chosen}: give one of them")
    return "json" if as_json else chosen


def _text(text: str) -> str:
    if text != "-":
        return text
    import sys

    return sys.stdin.read()


def _schemas(options: list[str]) -> dict[str, str]:
    from millrace_spark.pipeline.schema_file import read_schema

    found: dict[str, str] = {}
    for option in options:
        topic, equals, path = option.rpartition("=")
        if topic in found:
            raise typer.BadParameter(f"--schema: {topic or 'a topic'} has two of them")
        schema = read_schema(path)
        assert schema is not None
        found[topic if equals else ""] = schema
    return found


def _time_ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    from millrace_spark.options.bounds import parse_time

    return parse_time(option, text).timestamp_ms


def _starter(master: str | None, conf: list[str] | None) -> Callable[[], SparkSession]:
    def start() -> SparkSession:
        from millrace_spark.pipeline.spark_start import start_spark

        return start_spark("millrace sql", master=master, conf=tuple(conf or ()))

    return start
