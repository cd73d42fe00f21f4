"""`millrace user`: who may authenticate, and with which passwords.

Owns these flags and their output, and where a new password comes from.
"""

from __future__ import annotations

import getpass
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_identity import identity, read_password
from millrace_cli.exits import CommandError, Exit, run
from millrace_cli.json_output import Json, print_objects
from millrace_cli.servers import DEFAULT_SERVERS, Servers
from millrace_cli.table import show

if TYPE_CHECKING:
    from millrace.admin import Admin

NEW_PASSWORD = "MILLRACE_NEW_PASSWORD"
ITERATIONS_DEFAULT = 4096
user = typer.Typer(
    name="user",
    help="Add, list and remove users, and set their passwords.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help=f"File with the password in its first line; - is stdin.  [default: {NEW_PASSWORD}, or "
        "a question on the terminal]",
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        min=4096, max=16_384, help="How often the password is hashed: guesses and logins cost it."
    ),
]


@user.command()
def add(
    name: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = ITERATIONS_DEFAULT,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Add a user, for SCRAM-SHA-256 and SCRAM-SHA-512 (and PLAIN where the broker has it)."""

    async def work() -> Exit:
        async with _admin(servers) as admin:
            if name in await admin.list_users():
                raise CommandError(f"user {name!r} exists; `millrace user set-password` changes it")
            await admin.set_password(
                name, _new_password(name, password_file), iterations=iterations
            )
        return Exit.OK

    run(work())


@user.command("set-password")
def set_password(
    name: Name,
    password_file: PasswordFile = None,
    iterations: Iterations = ITERATIONS_DEFAULT,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Set the password of a user. Connections that the user has stay open."""

    async def work() -> Exit:
        async with _admin(servers) as admin:
            if name not in await admin.list_users():
                raise CommandError(f"there is no user {name!r}; `millrace user add` adds one")
            await admin.set_password(
                name, _new_password(name, password_file), iterations=iterations
            )
        return Exit.OK

    run(work())


@user.command("list")
def list_(as_json: Json = False, servers: Servers = DEFAULT_SERVERS) -> None:
    """List users, with the mechanisms and iterations of their passwords."""

    async def work() -> Exit:
        async with _admin(servers) as admin:
            users = (await admin.list_users()).values()
        if as_json:
            print_objects(("user", "iterations"), [(u.name, dict(u.iterations)) for u in users])
        else:
            rows = [(u.name, ",".join(f"{m}={n}" for m, n in u.iterations.items())) for u in users]
            show(("USER", "MECHANISMS"), rows)
        return Exit.OK

    run(work())


@user.command()
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of users.")],
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Remove users. Connections that they have stay open until they authenticate again."""

    async def work() -> Exit:
        async with _admin(servers) as admin:
            for name in dict.fromkeys(names):
                await admin.delete_user(name)
        return Exit.OK

    run(work())


def _admin(servers: str) -> Admin:
    from millrace.admin import Admin

    return Admin(servers, **identity())


def _new_password(name: str, file: str | None) -> str:
    """The password to set. Raises `CommandError` and `ConfigError`."""
    if file == "-":
        password = sys.stdin.readline().rstrip("\r\n")
    elif file is not None:
        password = read_password(file)
    elif given := os.environ.get(NEW_PASSWORD):
        password = given
    elif sys.stdin.isatty():
        password = getpass.getpass(f"New password of {name}: ")
        if password != getpass.getpass("Again: "):
            raise CommandError("the two passwords differ; nothing was changed")
    else:
        raise CommandError(
            f"there is no terminal to ask for the password; set {NEW_PASSWORD}, or name a file "
            "with --password-file (- is stdin)"
        )
    if not password:
        raise CommandError("the password is empty; nothing was changed")
    return password
