"""`millrace simulate`: seeds that fail are printed with the command that runs them again."""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from millrace_cli.exits import Exit
from millrace_simulation import FAULTS
from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.page import ROOT

PROGRAM = """
import asyncio
import os

from millrace import Admin


async def passes(sim):
    async with Admin(sim.servers) as admin:
        await admin.create_topic("t")


async def fails(sim):
    assert sim.seed % 2 == 0, "this seed is odd \\x1b[31m"


async def hashes(sim):
    for name in {f"name {number}" for number in range(100)}:
        sim.note(name)


async def waits(sim):
    sim.service("sleeper", asyncio.sleep, 10_000)
    # The first seed is over at once, and the others take minutes.
    for _ in range(1 if sim.seed == 1 else 1_000_000):
        await asyncio.sleep(0.001)


async def dies(sim):
    os._exit(9)


def blocks(sim):
    pass
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def simulate(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "simulate", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_S,
    )


def test_seeds_that_pass_are_a_summary(directory: Path) -> None:
    flags = ("--seeds", "1-3", "--faults", "none", "--brokers", "1")
    done = simulate(directory, "program:passes", *flags)
    assert (done.returncode, done.stdout) == (Exit.OK, "")
    assert done.stderr.splitlines()[0] == "3 seeds, 0 failed; 0 faults"


def test_a_seed_that_fails_is_printed_with_the_command_that_runs_it_again(directory: Path) -> None:
    flags = ("--seeds", "1,2,3", "-b", "1", "-f", "none", "--jobs", "1", "--seconds", "9")
    done = simulate(directory, "program.py:fails", *flags)
    assert done.returncode == Exit.REFUSED
    assert done.stderr.splitlines()[0] == "3 seeds, 2 failed; 0 faults"
    assert "\x1b" not in done.stdout
    again = re.findall(r"^again: millrace (.+)$", done.stdout, re.M)
    assert again == [
        f"simulate program.py:fails --seeds {seed} --trace --brokers 1 --seconds 9 --faults none"
        for seed in (1, 3)
    ]
    replayed = simulate(directory, *again[0].split()[1:])
    assert replayed.returncode == Exit.REFUSED
    assert "start broker1.1" in replayed.stdout
    assert "AssertionError: this seed is odd" in replayed.stdout


def test_stop_ends_with_the_first_seed_that_fails(directory: Path) -> None:
    flags = ("-s", "2-1000000", "-b", "1", "-f", "none", "--stop", "--json", "--jobs", "1")
    done = simulate(directory, "program:fails", *flags)
    assert done.returncode == Exit.REFUSED
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["seed"] for row in rows if row["failure"]] == [3]


def test_a_seed_has_the_same_digest_in_every_process(directory: Path) -> None:
    digests = {
        json.loads(simulate(directory, "program:hashes", "-s", "4", "--json").stdout)["digest"]
        for _ in range(2)
    }
    assert len(digests) == 1


def test_an_interrupt_ends_the_command_and_its_processes(directory: Path) -> None:
    flags = ("--seeds", "1-100", "--json")
    command = [*COMMAND, "simulate", "program:waits", *flags]
    with subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        # Its processes are at work when the first seed is over.
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=HANG_TIMEOUT_S)
    assert (process.returncode, stderr) == (Exit.INTERRUPTED, b"")


def test_a_process_that_dies_is_told(directory: Path) -> None:
    done = simulate(directory, "program:dies", "--seeds", "1-4")
    assert done.returncode == Exit.REFUSED
    assert done.stderr == (
        "millrace: a process ended before its seed did: the code that it ran ended it, or the "
        "system killed it because memory was short\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("program",), "'program' is not MODULE:FUNCTION or FILE.py:FUNCTION"),
        (("program:nothing",), "program has no `async def nothing(sim)`"),
        (("program:blocks",), "program has no `async def blocks(sim)`"),
        (("nothing.py:main",), "nothing.py cannot be imported: "),
        (("nothing:main",), "nothing cannot be imported: ModuleNotFoundError"),
        (("program:passes", "--seeds", "x"), "--seeds 'x' is not as 7, 1-100 or 1,4,9"),
        (("program:passes", "--seeds", "9-1"), "--seeds '9-1' has to rise"),
        (("program:passes", "--seeds", "1-99999999"), "at most 10,000,000 seeds"),
        (("program:passes", "--seeds", "1-2", "--trace"), "--trace takes one seed"),
        (("program:passes", "--faults", "fire"), "no fault 'fire'; there are kill, "),
        (("program:passes", "--brokers", "10"), "--brokers"),
    ],
)
def test_wrong_arguments_are_a_usage_error(
    directory: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = simulate(directory, *arguments)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert sentence in " ".join(done.stderr.split())


def test_the_page_lists_every_fault() -> None:
    page = (ROOT / "docs" / "how-to" / "simulate.md").read_text("utf-8")
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.M)) == dict(FAULTS)


def test_the_functions_on_the_page_are_those_of_the_example() -> None:
    page = (ROOT / "docs" / "how-to" / "simulate.md").read_text("utf-8")
    example = functions((ROOT / "examples" / "simulated_service.py").read_text("utf-8"))
    shown = functions("\n".join(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)))
    assert len(shown) == 2
    assert {name: example[name] for name in shown} == shown


def functions(source: str) -> dict[str, list[str]]:
    """The statements of each coroutine function, without its docstring."""
    found = [each for each in ast.parse(source).body if isinstance(each, ast.AsyncFunctionDef)]
    return {
        each.name: [ast.unparse(line) for line in each.body[ast.get_docstring(each) is not None :]]
        for each in found
    }
