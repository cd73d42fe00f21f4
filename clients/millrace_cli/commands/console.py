"""`millrace console`: a web page for operators of the cluster.

Owns the flags. `millrace_console` serves the page; it is imported when the command runs.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_settings import Settings, client_settings
from millrace_cli.exits import CommandError, Exit, ended, run
from millrace_cli.servers import DEFAULT_SERVERS, Servers

if TYPE_CHECKING:
    from collections.abc import Sequence

PASSWORD_VARIABLE = "MILLRACE_CONSOLE_PASSWORD"
_PASSWORD_CHARS_MIN = 8
Listen = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: any.")
]
InsecureListen = Annotated[
    bool,
    typer.Option(
        "--insecure-listen",
        help="Listen beyond loopback. What is sent is not encrypted; put a proxy with TLS before "
        "it.",
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="A host name in the address of the page, beside localhost; may be repeated.",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"A file with the password of the login, or {PASSWORD_VARIABLE} has it.  "
        "[default: a token in the printed address]",
    ),
]
UserLogin = Annotated[
    bool,
    typer.Option(
        "--user-login",
        help="Users log in with their names and passwords of the brokers, and have their own "
        "rights.  [default: where the brokers want a user and the environment names none]",
    ),
]
AllowChanges = Annotated[
    bool,
    typer.Option(
        "--allow-changes",
        help="Let the page create and delete topics, send records and reset groups.",
    ),
]


def console(
    listen: Listen = "127.0.0.1:8080",
    insecure_listen: InsecureListen = False,
    allowed_host: AllowedHosts = None,
    password_file: PasswordFile = None,
    user_login: UserLogin = False,
    allow_changes: AllowChanges = False,
    setting: Settings = None,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Serve a web page for operators, until SIGTERM or ^C.

    Prints `open URL` when it serves. The page shows brokers, topics, records as they come, groups
    and their lag. It changes nothing without --allow-changes. Needs pip install
    'millrace[console]'.
    """
    from millrace.config import ClientConfig
    from millrace_server.listeners import host_and_port, is_loopback

    try:
        host, port = host_and_port(listen)
    except ValueError as error:
        raise typer.BadParameter(f"--listen: {error}") from None
    options = client_settings(setting, ClientConfig)
    password = _password(password_file)

    async def work() -> Exit:
        try:
            from millrace_console.serve import serve
        except ImportError as error:
            raise CommandError(
                f"{error.name} is not installed; pip install 'millrace[console]'"
            ) from None
        if not is_loopback(host) and not insecure_listen:
            return ended(
                Exit.USAGE,
                f"--listen: {host} can be reached from other machines; add --insecure-listen to "
                "allow that",
            )
        try:
            listener = _listening(host, port)
        except OSError as error:
            reason = error.strerror or error
            return ended(Exit.LISTEN, f"cannot listen on {listen}: {reason}; give another --listen")
        with listener:
            await serve(
                servers,
                listener,
                options=options,
                password=password,
                user_login=user_login,
                hosts=_names(allowed_host or ()),
                allow_changes=allow_changes,
                on_ready=lambda url: print(f"open {url}", flush=True),
            )
        return Exit.OK

    run(work())


def _names(hosts: Sequence[str]) -> frozenset[str]:
    return frozenset(host.lower() for host in hosts)


def _password(file: Path | None) -> str | None:
    """The password of the login; None where none is given. Raises `typer.BadParameter`."""
    found = os.environ.get(PASSWORD_VARIABLE)
    if file is not None:
        try:
            found = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"--password-file: {file}: {error}") from None
    if found is not None and len(found) < _PASSWORD_CHARS_MIN:
        raise typer.BadParameter(
            f"the password has fewer than {_PASSWORD_CHARS_MIN} characters; give a longer one"
        )
    return found


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)
