"""`millrace serve`: a broker in this process.

Owns the flags. `millrace_server.serve` acts on them; it is imported when the command runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def serve(
    data: Annotated[
        str | None,
        typer.Option(help="Data directory; made if missing.  [default: millrace-data]"),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address to listen on; port 0: any.  [default: 127.0.0.1:9092]",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings from a TOML file.")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address that clients are told to connect to."),
    ] = None,
    insecure_listen: Annotated[
        bool | None,
        typer.Option(
            "--insecure-listen",
            help="Allow listening beyond loopback, where anybody who connects can read and write.",
        ),
    ] = None,
    node_id: Annotated[int | None, typer.Option(help="This broker's id.  [default: 0]")] = None,
    partitions: Annotated[
        int | None,
        typer.Option(help="Partitions of a topic created without a number.  [default: 1]"),
    ] = None,
    text_dialect: Annotated[
        bool | None,
        typer.Option("--text/--no-text", help="Answer lines typed into netcat.  [default: --text]"),
    ] = None,
    loop: Annotated[str | None, typer.Option(help="uvloop or asyncio.  [default: uvloop]")] = None,
    drain_timeout_ms: Annotated[
        int | None,
        typer.Option(help="How long a stopping broker lets requests finish.  [default: 10000]"),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.  [default: info]")
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(help="json, console, or auto: console on a terminal.  [default: auto]"),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or ^C.

    Prints `listening on HOST:PORT` when it accepts connections. Settings come from FILE, then
    MILLRACE_* variables, then flags; the later wins. A second signal ends it without draining.
    """
    from millrace_server.serve import serve as run

    flags = {
        "data": data,
        "listen": listen,
        "advertise": advertise,
        "insecure_listen": insecure_listen,
        "node_id": node_id,
        "partitions": partitions,
        "text_dialect": text_dialect,
        "loop": loop,
        "drain_timeout_ms": drain_timeout_ms,
        "log_level": log_level,
        "log_format": log_format,
    }
    raise typer.Exit(run(config_file=config, environment=os.environ, flags=flags))
