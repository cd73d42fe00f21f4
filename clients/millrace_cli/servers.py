"""`--servers`: the addresses of the brokers, for client commands, and how long to wait for them."""

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
