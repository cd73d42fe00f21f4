"""`millrace tls`: certificates for development."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from millrace_cli.exits import Exit, ended, run_blocking

tls = typer.Typer(name="tls", help="Make certificates for development.", no_args_is_help=True)
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@tls.callback()
def _group() -> None:
    """Keeps the name of the only command."""


@tls.command()
def make_dev_certs(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where the files are written.")
    ] = Path("certificates"),
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name or address of the broker; repeatable.  [default: localhost, 127.0.0.1, ::1]",
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name of a client, its CN; repeatable."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days until they expire.")] = 90,
) -> None:
    """Write an authority, and certificates of it for a broker and for clients.

    ca.pem is for clients (tls_ca) and for brokers that check them (tls_client_ca), broker.pem for
    tls_certificate of brokers, client-NAME.pem for tls_certificate of clients. Files that are there
    stay. Not for production: whoever has ca-key.pem can make certificates.

    Needs pip install 'millrace[tls]'.
    """
    for name in client or ():
        if not _CLIENT.fullmatch(name):
            raise typer.BadParameter(
                f"--client: {name!r} is no name of up to 64 of A-Z, a-z, 0-9, ., _ and -"
            )

    def work() -> Exit:
        try:
            from millrace_cli.dev_certificates import make_certificates
        except ModuleNotFoundError as error:
            return ended(Exit.USAGE, f"this needs {error.name}: pip install 'millrace[tls]'")
        hosts = host or ["localhost", "127.0.0.1", "::1"]
        made = make_certificates(directory, hosts=hosts, clients=client or (), days=days)
        for path in made:
            print(path)
        return Exit.OK

    run_blocking(work)
