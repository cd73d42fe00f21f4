"""`millrace serve`: a broker in this process.

Owns the flags. `millrace_server.serve` acts on them; it is imported when the command runs.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Annotated

import typer

Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address to listen on; port 0: any. Several with commas between them, tls:// before "
        "those with TLS, sasl:// or sasl+tls:// where clients authenticate.  "
        "[default: 127.0.0.1:9092]",
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address that the broker advertises to clients."),
]
TlsCertificate = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Certificate of the listeners with TLS, and its key (PEM)."),
]
TlsKey = Annotated[
    str | None, typer.Option(metavar="FILE", help="The key, where it is in a file of its own.")
]
TlsClientCa = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Authorities of clients: with TLS, each needs a certificate (PEM)."
    ),
]
Quorum = Annotated[
    str | None,
    typer.Option(
        metavar="ID@HOST:PORT,...",
        help="The brokers of a cluster, each with its address for brokers; the same on each.",
    ),
]
BrokerListen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address to listen on for other brokers.  [default: this broker's in --quorum]",
    ),
]
MetricsListen = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Address that answers HTTP: /metrics for Prometheus, and /health.  [default: none]",
    ),
]
InsecureListen = Annotated[
    bool | None,
    typer.Option(
        "--insecure-listen",
        help="Listen beyond loopback without TLS or without authentication.",
    ),
]
Rack = Annotated[
    str | None, typer.Option(help="Where the broker is: replicas go to different racks.")
]
TextDialect = Annotated[
    bool | None,
    typer.Option("--text/--no-text", help="Accept text lines, as from netcat.  [default: --text]"),
]
DrainTimeout = Annotated[
    int | None,
    typer.Option(help="Longest wait of a stopping broker for its requests.  [default: 10000]"),
]
LogFormat = Annotated[
    str | None,
    typer.Option(help="json, console, or auto: console on a terminal.  [default: auto]"),
]


def serve(
    data: Annotated[
        str | None,
        typer.Option(help="Data directory; created if missing.  [default: millrace-data]"),
    ] = None,
    listen: Listen = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings from a TOML file.")
    ] = None,
    advertise: Advertise = None,
    insecure_listen: InsecureListen = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    metrics_listen: MetricsListen = None,
    node_id: Annotated[int | None, typer.Option(help="This broker's id.  [default: 0]")] = None,
    quorum: Quorum = None,
    broker_listen: BrokerListen = None,
    rack: Rack = None,
    partitions: Annotated[
        int | None,
        typer.Option(help="Default number of partitions of a topic.  [default: 1]"),
    ] = None,
    text_dialect: TextDialect = None,
    loop: Annotated[str | None, typer.Option(help="uvloop or asyncio.  [default: uvloop]")] = None,
    drain_timeout_ms: DrainTimeout = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.  [default: info]")
    ] = None,
    log_format: LogFormat = None,
) -> None:
    """Run a broker until SIGTERM or ^C.

    Prints `listening on HOST:PORT` when it accepts connections. Flags override MILLRACE_*
    variables, which override FILE. A second signal ends the broker without draining. SIGHUP has it
    read FILE again, and drain if its terminal was closed.

    With --quorum the broker is one of a cluster. It waits for a majority of the brokers named
    there, and the first time for all of them. `millrace cluster start` runs a cluster on this
    machine.

    --metrics-listen needs pip install 'millrace[metrics]'.
    """
    # Every parameter but the file is a setting of the same name.
    flags = {name: value for name, value in locals().items() if name != "config"}
    # The collector would go through all that is imported, again and again: a fifth of the time.
    gc.disable()
    from millrace_server.serve import serve as run

    gc.enable()
    raise typer.Exit(run(config_file=config, environment=os.environ, flags=flags))
