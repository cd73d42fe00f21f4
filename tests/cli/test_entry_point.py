"""The command line as a whole: how it is started, its help, its completion in a shell."""

from __future__ import annotations

import os
import subprocess
import tomllib
from importlib import import_module
from importlib.metadata import EntryPoint, version
from pathlib import Path

import pytest
import typer

from millrace_cli.exits import Exit
from millrace_cli.main import COMMANDS as TOP_LEVEL
from millrace_cli.main import app_for, main
from tests.cli.command_tree import COMMANDS, GROUPS
from tests.cli.conftest import Millrace
from tests.command_line import write_script
from tests.hang_timeout import HANG_TIMEOUT_S

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_script_and_the_module_run_the_same_function() -> None:
    ((name, target),) = tomllib.loads(PROJECT.read_text())["project"]["scripts"].items()
    assert name == "millrace"
    assert EntryPoint(name, target, "console_scripts").load() is main
    assert vars(import_module("millrace_cli.__main__"))["main"] is main


def test_usage_names_the_script_however_it_was_started(millrace: Millrace) -> None:
    done = millrace.process("topic")
    assert b"Usage: millrace topic" in done.stdout + done.stderr


@pytest.mark.parametrize("command", [*GROUPS, *COMMANDS], ids=" ".join)
def test_every_command_has_help_at_h(millrace: Millrace, command: tuple[str, ...]) -> None:
    short, long = (millrace(*command, flag) for flag in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (long.exit_code, long.stdout)
    assert short.exit_code == 0
    assert short.stdout.splitlines()[0].startswith("Usage: ")


def test_an_app_holds_the_command_that_is_named_or_all() -> None:
    assert set(TOP_LEVEL) == {words[0] for words in (*GROUPS, *COMMANDS) if words}
    for words, names in ((["topic", "list"], {"topic"}), (["nc"], {"nc"}), (["tpoic"], None)):
        made = typer.main.get_command(app_for(words))
        assert set(made.commands) == (names or set(TOP_LEVEL))  # type: ignore[attr-defined]


def test_the_version_is_at_a_capital_v(millrace: Millrace) -> None:
    for flag in ("-V", "--version"):
        assert millrace(flag).stdout == version("millrace") + "\n"


def test_bash_completes_commands_and_flags(tmp_path: Path) -> None:
    """In the way of a user: bash evaluates the script that the command prints, and calls it."""
    write_script(tmp_path)
    lines = """
        eval "$(millrace --show-completion)"
        complete -p millrace
        complete_line() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _millrace_completion millrace
            echo "${COMPREPLY[@]}"
        }
        complete_line millrace topic tr
        complete_line millrace topic trim --par
        complete_line millrace cl
    """
    done = subprocess.run(
        ["bash"],
        input=lines,
        env={**os.environ, "PATH": os.pathsep.join((str(tmp_path), os.environ["PATH"]))},
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_S,
    )
    assert done.stderr == ""
    registered, *completed = done.stdout.splitlines()
    assert registered == "complete -o default -F _millrace_completion millrace"
    assert completed == ["trim", "--partition", "cluster"]


def test_a_shell_without_completion_is_a_usage_error(millrace: Millrace) -> None:
    millrace.environment["_MILLRACE_COMPLETE"] = "complete_sh4"
    done = millrace.process()
    assert done.returncode != Exit.PIPE_CLOSED
    assert done.stderr
