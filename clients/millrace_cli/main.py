"""The entry point: the list of commands.

Command modules have flags and are cheap to import. A command imports its needs when it runs, so
that `millrace --help` starts fast and `millrace serve` loads no client.
"""

from __future__ import annotations

from typing import Annotated

import typer

from millrace_cli.commands.cluster import cluster
from millrace_cli.commands.consume import consume
from millrace_cli.commands.dissect import dissect
from millrace_cli.commands.group import group
from millrace_cli.commands.nc import nc
from millrace_cli.commands.produce import produce
from millrace_cli.commands.serve import serve
from millrace_cli.commands.spark import spark
from millrace_cli.commands.topic import topic
from millrace_cli.demo.command import demo
from millrace_cli.exits import EXIT_CODES, Exit

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
app.add_typer(cluster)
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
        # During the imports of a command, before the command handles the signal.
        raise SystemExit(Exit.INTERRUPTED) from None
