"""`--servers`: the addresses of the brokers, for client commands, and how long to wait for them."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace_cli.client_identity import CREDENTIALS_HELP

Servers = Annotated[
    str,
    typer.Option(
        "--servers",
        "-s",
        metavar="HOST:PORT,...",
        envvar="MILLRACE_SERVERS",
        show_default=True,
        help=f"Brokers to connect to first. {CREDENTIALS_HELP}",
    ),
]
DEFAULT_SERVERS = "localhost:9092"
BrokerTimeout = Annotated[
    float,
    typer.Option(
        "--broker-timeout",
        metavar="SECONDS",
        min=0.001,
        help="End with exit code 69 after so long without a response of a broker.",
    ),
]
DEFAULT_BROKER_TIMEOUT_S = 60.0
