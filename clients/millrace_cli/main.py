"""The entry point: the list of commands.

Command modules have flags and are cheap to import. A command imports its needs when it runs, so
that `millrace --help` starts fast and `millrace serve` loads no client.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from millrace_cli.commands.acl import acl
from millrace_cli.commands.backup import backup
from millrace_cli.commands.bench import bench
from millrace_cli.commands.broker import broker
from millrace_cli.commands.cluster import cluster
from millrace_cli.commands.console import console
from millrace_cli.commands.consume import consume
from millrace_cli.commands.dissect import dissect
from millrace_cli.commands.group import group
from millrace_cli.commands.nc import nc
from millrace_cli.commands.produce import PRODUCE_HELP, produce
from millrace_cli.commands.quota import quota
from millrace_cli.commands.restore import restore
from millrace_cli.commands.serve import serve
from millrace_cli.commands.simulate import simulate
from millrace_cli.commands.spark import spark
from millrace_cli.commands.sql import sql
from millrace_cli.commands.tls import tls
from millrace_cli.commands.topic import topic
from millrace_cli.commands.user import user
from millrace_cli.demo.command import demo
from millrace_cli.exits import EXIT_CODES, Exit, output_closed, output_failed
from millrace_cli.standard_output import install
from millrace_cli.visible_text import visible

COMMANDS: dict[str, typer.Typer | Callable[..., None]] = {
    "serve": serve,
    "topic": topic,
    "produce": produce,
    "consume": consume,
    "group": group,
    "cluster": cluster,
    "broker": broker,
    "user": user,
    "acl": acl,
    "quota": quota,
    "console": console,
    "nc": nc,
    "dissect": dissect,
    "demo": demo,
    "sql": sql,
    "simulate": simulate,
    "spark": spark,
    "bench": bench,
    "backup": backup,
    "restore": restore,
    "tls": tls,
}
"""By their names, in the order of `millrace --help`: a function, or an app of commands."""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("millrace"))
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def app_of(names: Iterable[str]) -> typer.Typer:
    """The command line with these commands."""
    made = typer.Typer(
        name="millrace",
        help="An event log: broker, clients and tools.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        callback=_options,
    )
    for name in names:
        command = COMMANDS[name]
        if isinstance(command, typer.Typer):
            made.add_typer(command)
        else:
            made.command(help=PRODUCE_HELP if command is produce else None)(command)
    return made


app = app_of(COMMANDS)
"""All of it."""


def app_for(words: Sequence[str]) -> typer.Typer:
    """The command line with the command that the first word names; all of it if that is none.

    When an app is called, typer makes objects of all flags of all its commands: 90 ms for all.
    """
    return app_of(words[:1]) if words and words[0] in COMMANDS else app


_UsageError: Any = typer.BadParameter.__base__
"""The base of errors in flags and arguments: typer's own, or click's, by the version of typer."""


def main() -> None:
    """Runs the command line of this process."""
    install()
    try:
        code = app_for(sys.argv[1:])(prog_name="millrace", standalone_mode=False)
        sys.stdout.flush()
    except _UsageError as error:
        # It repeats what was typed.
        error.message = visible(error.message, keep="\n\t")
        error.show()
        code = error.exit_code
    except typer.Abort:
        print("Aborted.", file=sys.stderr)
        code = Exit.REFUSED
    except KeyboardInterrupt:
        # During the imports of a command, before the command handles the signal.
        code = Exit.INTERRUPTED
    except SystemExit as ended:
        # A request of the shell for completions ends so; EPIPE in the text of --help, too, with 1.
        is_done = ended.code == 0 or "_MILLRACE_COMPLETE" in os.environ
        code = ended.code if is_done else output_closed()
    except OSError as error:
        code = output_failed(error)
    raise SystemExit(code)
