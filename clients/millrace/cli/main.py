"""The entry point: which commands there are.

Command modules hold flags and are light to import; what a command needs is imported when it runs,
so that `millrace --help` answers at once and `millrace serve` loads no client.
"""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.consume import consume
from millrace.cli.demo import demo
from millrace.cli.dissect import dissect
from millrace.cli.exits import EXIT_CODES, Exit
from millrace.cli.group import group
from millrace.cli.nc import nc
from millrace.cli.produce import produce
from millrace.cli.serve import serve
from millrace.cli.topic import topic
from millrace_spark.cli import spark

app = typer.Typer(
    name="millrace",
    help="An event log: broker, clients and tools.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(serve)
app.add_typer(topic)
app.command()(produce)
app.command()(consume)
app.add_typer(group)
app.command()(nc)
app.command()(dissect)
app.command()(demo)
app.add_typer(spark)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("millrace"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Runs the command line of this process."""
    try:
        app()
    except KeyboardInterrupt:
        # Before a command has taken over the signal: during its imports.
        raise SystemExit(Exit.INTERRUPTED) from None
