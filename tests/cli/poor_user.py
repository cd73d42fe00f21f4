"""A broker with access control: the command line of its operator, and of a user with few rights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from millrace_cli.client_identity import PASSWORD, USERNAME
from millrace_cli.commands.user import NEW_PASSWORD

if TYPE_CHECKING:
    from tests.cli.conftest import Millrace, Serve

OPERATOR = {"MILLRACE_SUPER_USERS": "User:ANONYMOUS", NEW_PASSWORD: "pencil"}
"""Who comes by the listener without authentication may do everything."""


@pytest.fixture
def operator(millrace: Millrace, serve: Serve) -> Iterator[Millrace]:
    """The command line on a new broker, as a super user; `sasl` is where the others connect."""
    listen = "127.0.0.1:0,sasl://127.0.0.1:0"
    with serve("--listen", listen, environment=OPERATOR) as serving:
        plain, sasl = serving.first_line.removeprefix("listening on ").split(", ")
        millrace.environment |= {NEW_PASSWORD: "pencil", "SASL": sasl.removeprefix("sasl://")}
        millrace.servers = plain
        assert millrace("user", "add", "ada").exit_code == 0
        assert millrace("topic", "create", "orders", "orders-eu", "other").exit_code == 0
        yield millrace


def as_ada(millrace: Millrace, *arguments: str, stdin: bytes | None = None) -> tuple[int, str, str]:
    """Exit code, output and errors of a command of the user; with `stdin`, of a process."""
    plain, millrace.servers = millrace.servers, millrace.environment["SASL"]
    millrace.environment |= {USERNAME: "ada", PASSWORD: "pencil"}
    try:
        if stdin is None:
            shown = millrace(*arguments)
            return shown.exit_code, shown.stdout, shown.stderr
        done = millrace.process(*arguments, stdin=stdin)
    finally:
        millrace.servers = plain
        del millrace.environment[USERNAME]
    return done.returncode, done.stdout.decode(), done.stderr.decode()
