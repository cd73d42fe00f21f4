"""`--servers`: the addresses of the brokers, for client commands."""

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
        help="Brokers to connect to first.",
    ),
]
DEFAULT_SERVERS = "localhost:9092"
