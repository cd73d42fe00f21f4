"""The entry point: which commands there are.

Command modules hold flags and are light to import; what a command needs is imported when it runs,
so that `millrace --help` answers at once and `millrace serve` loads no client.
"""

from __future__ import annotations

from typing import Annotated

import typer

from millrace_cli.consume import consume
from millrace_cli.demo.command import demo
from millrace_cli.dissect import dissect
from millrace_cli.exits import EXIT_CODES, Exit
from millrace_cli.group import group
from millrace_cli.nc import nc
from millrace_cli.produce import produce
from millrace_cli.serve import serve
from millrace_cli.spark import spark
from millrace_cli.topic import topic

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
        app(prog_name="millrace")
    except KeyboardInterrupt:
        # Before a command has taken over the signal: during its imports.
        raise SystemExit(Exit.INTERRUPTED) from None
