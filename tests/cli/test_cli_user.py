"""`millrace user`, and commands that say who they are."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest

from millrace_cli.client_identity import MECHANISM, PASSWORD, PASSWORD_FILE, TOKEN, USERNAME
from millrace_cli.commands.user import NEW_PASSWORD
from millrace_cli.exits import Exit
from tests.cli.json_shapes import check_shape, documented
from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Millrace, Serve

BOTH = ("--listen", "127.0.0.1:0,sasl://127.0.0.1:0")
FREE = {"MILLRACE_AUTHORIZATION": "off"}
"""Clients need no rights."""


def as_user(millrace: Millrace, name: str, password: str) -> None:
    millrace.environment |= {USERNAME: name, PASSWORD: password}


def test_a_user_is_added_authenticates_and_is_removed(
    millrace: Millrace, serve: Serve, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pencil\nno part of it\n")
    with serve(*BOTH, environment=FREE) as serving:
        plain, sasl = serving.first_line.removeprefix("listening on ").split(", ")
        millrace.servers = plain
        added = millrace("user", "add", "ada", "--password-file", str(secret))
        assert (added.exit_code, added.output) == (0, "")
        mechanisms = "SCRAM-SHA-256=4096,SCRAM-SHA-512=4096"
        assert millrace("user", "list").stdout == f"ada\t{mechanisms}\n"
        millrace.servers = sasl.removeprefix("sasl://")
        nobody = millrace("topic", "list")
        assert (nobody.exit_code, "has not authenticated" in nobody.stderr) == (Exit.REFUSED, True)
        as_user(millrace, "ada", "pencil")
        assert millrace("topic", "create", "t").exit_code == 0
        assert millrace.process("produce", "t", stdin=b"a\n").returncode == 0
        assert millrace.process("consume", "t").stdout == b"a\n"
        assert millrace("user", "remove", "ada").exit_code == 0
        refused = millrace("topic", "list")
        assert refused.exit_code == Exit.REFUSED
        assert "the user or the password is wrong" in refused.stderr


def test_the_initial_user_adds_users_where_every_listener_asks_for_one(
    millrace: Millrace, serve: Serve, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pencil\n")
    settings = {
        "MILLRACE_SUPER_USERS": "User:root",
        "MILLRACE_INITIAL_USER": "root",
        "MILLRACE_INITIAL_PASSWORD_FILE": str(secret),
    }
    with serve("--listen", "sasl://127.0.0.1:0", environment=settings) as serving:
        millrace.servers = serving.first_line.removeprefix("listening on sasl://")
        as_user(millrace, "root", "pencil")
        assert millrace("user", "add", "ada", "--password-file", str(secret)).exit_code == 0
        assert [line.split("\t")[0] for line in millrace("user", "list").stdout.splitlines()] == [
            "ada",
            "root",
        ]
        assert "pencil" not in millrace("cluster", "config").output
        code, stderr = serving.stop()
    assert (code, "initial user added" in stderr, "pencil" in stderr) == (0, True, False)


@pytest.mark.parametrize("content", [None, b"", b"\nsecond", b"\xff"])
def test_a_file_without_the_initial_password_ends_the_broker(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    environment = {"MILLRACE_INITIAL_USER": "r", "MILLRACE_INITIAL_PASSWORD_FILE": str(file)}
    done = subprocess.run(
        [*COMMAND, "serve", "--data", str(tmp_path / "data")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_S,
    )
    assert done.returncode == 2
    assert "initial_password_file" in done.stderr


def test_a_new_password_replaces_the_old_one(millrace: Millrace, serve: Serve) -> None:
    with serve(*BOTH, environment=FREE) as serving:
        plain, sasl = serving.first_line.removeprefix("listening on ").split(", ")
        millrace.servers = plain
        millrace.environment[NEW_PASSWORD] = "first"
        assert millrace("user", "add", "ada").exit_code == 0
        millrace.environment[NEW_PASSWORD] = "second"
        changed = millrace("user", "set-password", "ada", "--iterations", "8192")
        assert changed.exit_code == 0
        (user,) = found = json.loads(millrace("user", "list", "--json").stdout)
        check_shape(documented()["user", "list"], found)
        assert user == {
            "user": "ada",
            "iterations": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192},
        }
        millrace.servers = sasl.removeprefix("sasl://")
        as_user(millrace, "ada", "first")
        assert millrace("topic", "list").exit_code == Exit.REFUSED
        as_user(millrace, "ada", "second")
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            millrace.environment[MECHANISM] = mechanism
            assert millrace("topic", "list").exit_code == 0


def answer(terminal: int, process: subprocess.Popen[bytes], *questions: str) -> None:
    """Types the password after each question, and waits for the end."""
    assert process.stderr is not None
    for question in questions:
        assert process.stderr.read(len(question)).decode() == question
        os.write(terminal, b"pencil\n")
        assert process.stderr.read(1) == b"\n"
    assert process.wait(HANG_TIMEOUT_S) == 0


def test_what_cannot_be_done_to_a_user_says_what_can(millrace: Millrace, serve: Serve) -> None:
    with serve() as serving:
        millrace.servers = serving.servers
        millrace.environment[NEW_PASSWORD] = "pencil"
        assert millrace("user", "add", "ada").exit_code == 0
        again = millrace("user", "add", "ada")
        assert again.exit_code == Exit.REFUSED
        assert "`millrace user set-password` changes it" in again.stderr
        unknown = millrace("user", "set-password", "bob")
        assert (unknown.exit_code, "`millrace user add`" in unknown.stderr) == (Exit.REFUSED, True)
        gone = millrace("user", "remove", "bob")
        assert (gone.exit_code, "no user 'bob'" in gone.stderr) == (Exit.REFUSED, True)
        empty = millrace.process("user", "add", "eve", "--password-file", "-", stdin=b"\n")
        assert empty.returncode == Exit.REFUSED
        assert b"the password is empty" in empty.stderr
        del millrace.environment[NEW_PASSWORD]
        missing = millrace("user", "add", "eve")
        assert missing.exit_code == Exit.REFUSED
        assert f"set {NEW_PASSWORD}" in missing.stderr
        assert [u["user"] for u in json.loads(millrace("user", "list", "-J").stdout)] == ["ada"]


def test_a_password_is_asked_for_on_a_terminal(millrace: Millrace, serve: Serve) -> None:
    with serve(*BOTH, environment=FREE) as serving:
        plain, sasl = serving.first_line.removeprefix("listening on ").split(", ")
        millrace.servers = plain
        ours, theirs = pty.openpty()
        try:
            with millrace.running("user", "add", "ada", stdin=theirs) as process:
                answer(ours, process, "New password of ada: ", "Again: ")
            millrace.servers = sasl.removeprefix("sasl://")
            millrace.environment[USERNAME] = "ada"
            with millrace.running("topic", "list", stdin=theirs) as process:
                answer(ours, process, "Password of ada: ")
        finally:
            os.close(ours)
            os.close(theirs)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({USERNAME: "ada"}, f"set {PASSWORD} too"),
        ({USERNAME: "ada", PASSWORD_FILE: "/none"}, "the password in /none cannot be read"),
        ({MECHANISM: "LOGIN", USERNAME: "a", PASSWORD: "b"}, "is none of SCRAM-SHA-256"),
        ({USERNAME: "a", PASSWORD: "b", MECHANISM: "PLAIN"}, "needs TLS"),
        ({TOKEN: "t"}, "needs TLS"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_identity_that_cannot_be_is_refused_before_connecting(
    millrace: Millrace, environment: dict[str, str], said: str
) -> None:
    millrace.environment |= environment
    refused = millrace("topic", "list")
    assert refused.exit_code == Exit.USAGE
    assert said in refused.stderr.replace("\n", " ")


def test_a_password_is_no_flag(millrace: Millrace) -> None:
    refused = millrace("consume", "t", "-X", "password=pencil")
    assert refused.exit_code == Exit.USAGE
    assert f"set {PASSWORD} instead" in refused.stderr.replace("\n", " ")
