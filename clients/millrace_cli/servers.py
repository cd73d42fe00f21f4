"""`--servers`: how a client command is told where the brokers are."""

from __future__ import annotations

from typing import Annotated

import typer

Servers = Annotated[
    str,
    typer.Option(
        "--servers",
        "-s",
        metavar="HOST:PORT,...",
        envvar="MILLRACE_SERVERS",
        show_default=True,
        help="Brokers to try first.",
    ),
]
DEFAULT_SERVERS = "localhost:9092"
