"""The script `millrace` and `python -m millrace_cli` run the same command line."""

from __future__ import annotations

import tomllib
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

from millrace_cli.main import main
from tests.cli.conftest import Millrace

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_script_and_the_module_run_the_same_function() -> None:
    ((name, target),) = tomllib.loads(PROJECT.read_text())["project"]["scripts"].items()
    assert name == "millrace"
    assert EntryPoint(name, target, "console_scripts").load() is main
    assert vars(import_module("millrace_cli.__main__"))["main"] is main


def test_usage_names_the_script_however_it_was_started(millrace: Millrace) -> None:
    done = millrace.process("topic")
    assert b"Usage: millrace topic" in done.stdout + done.stderr
