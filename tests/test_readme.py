"""README's tour, typed line by line into one shell, prints the output in the README.

So do the pages about pipes and about topics as tables in `docs`.

In expected output `...` stands for any text within a line. The only things changed are the port,
so that the tests do not need 9092, `nc`, which need not be installed: a stand-in of ten lines takes
its place, and how long the first member of a group waits for others.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import write_script
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.quick_spark import needs_java

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TABLES = ROOT / "docs" / "topics-as-tables.md"
CLICKS = """\
{"page": "/home", "ms": 20}
{"page": "/cart", "ms": 95}
{"page": "/home", "ms": 35.5}
{"page": "/home", "ms": 64.5}
"""

NC = """#!{python}
import socket, sys
connection = socket.create_connection((sys.argv[-2], int(sys.argv[-1])))
connection.sendall(sys.stdin.buffer.read())
connection.shutdown(socket.SHUT_WR)
while data := connection.recv(65536):
    sys.stdout.buffer.write(data)
"""


@dataclass(frozen=True)
class Step:
    """One line typed, and what must follow."""

    command: str
    expected: list[str]


PIPES = ROOT / "docs" / "pipes.md"


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README.read_text(), re.M | re.S)
    assert found is not None, title
    return found[1]


STEP = re.compile(
    r"^```console\n(.*?)^```|^```python\n(.*?)^```\s+prints\s+^```text\n(.*?)^```", re.M | re.S
)


def steps(text: str) -> list[Step]:
    """The `$` lines of console blocks, with the output below each; Python with what it prints."""
    found: list[Step] = []
    for console, code, printed in STEP.findall(text):
        if code:
            found.append(Step(f"python - <<'END'\n{code}END", printed.splitlines()))
        for line in console.splitlines():
            if line.startswith("$ "):
                found.append(Step(line.removeprefix("$ "), []))
            else:
                found[-1].expected.append(line)
    return found


class Shell:
    """One bash for the whole tour, so that background jobs and files stay."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> tuple[list[str], int]:
        """The lines a command prints, and its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        end = uuid.uuid4().hex
        self._process.stdin.write(f"{command}\necho {end} $?\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            before, found, code = line.rstrip("\n").partition(end)
            if found:
                return lines + ([before] if before else []), int(code)
            lines.append(before)
        raise AssertionError(f"the shell ended in {command!r}: {lines}")

    def close(self) -> None:
        self._process.communicate("kill $(jobs -p) 2>/dev/null; wait\n", timeout=HANG_TIMEOUT_S)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    nc = binaries / "nc"
    nc.write_text(NC.format(python=sys.executable))
    nc.chmod(0o755)
    write_script(binaries)
    work = tmp_path / "work"
    work.mkdir()
    (work / "examples").symlink_to(ROOT / "examples")
    path = os.pathsep.join([str(binaries), str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = Shell(work, {**os.environ, "PATH": path, "TERM": "dumb"})
    yield shell
    shell.close()


def test_every_line_of_the_tour_prints_the_output_in_the_readme(shell: Shell) -> None:
    port = free_port(shell)
    tour = steps(section("Tour"))
    assert len(tour) > 8
    for step in tour:
        check(shell, step, port)


def test_every_line_of_the_page_about_pipes_prints_the_output_there(shell: Shell) -> None:
    port = free_port(shell)
    page = steps(PIPES.read_text())
    assert len(page) > 8
    for step in [*steps(section("Tour"))[:2], *page]:
        check(shell, step, port)


def test_the_page_about_tables_prints_what_stands_there(shell: Shell) -> None:
    port = free_port(shell)
    shell.run(f"printf %s {shlex.quote(CLICKS)} > clicks.jsonl")
    page = TABLES.read_text()
    commands = [step for step in steps(page) if not step.command.startswith("python ")]
    assert len(commands) > 5
    for step in [*steps(section("Tour"))[:2], *commands]:
        check(shell, step, port)
    # One program, because later blocks use the names of those before.
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S))
    printed = "".join(re.findall(r"^```text\n(.*?)^```", page, re.M | re.S))
    check(shell, Step(f"python - <<'END'\n{code}END", printed.splitlines()), port)


@pytest.mark.spark
@pytest.mark.timeout(1_200)
@needs_java
def test_every_line_about_spark_prints_the_output_in_the_readme(
    shell: Shell, quick_spark: dict[str, str], tmp_path: Path
) -> None:
    port = free_port(shell)
    # Java and Spark have things to say; they are shown if a line fails.
    stderr = tmp_path / "stderr"
    shell.run(f"exec 2>{stderr}")
    shell.run(f"export {shlex.join(f'{name}={value}' for name, value in quick_spark.items())}")
    tour = steps(section("With Spark"))
    assert len(tour) > 3
    for step in [*steps(section("Tour"))[:2], *tour]:
        try:
            check(shell, step, port)
        except AssertionError as error:
            error.add_note(stderr.read_text())
            raise


def free_port(shell: Shell) -> str:
    """One that the broker of the tour will have, and its commands are told of."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shell.run(f"export MILLRACE_SERVERS=localhost:{port} MILLRACE_LISTEN=127.0.0.1:{port}")
    shell.run("export MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS=0")
    return port


def check(shell: Shell, step: Step, port: str) -> None:
    """Types a line, and compares."""
    lines, code = shell.run(step.command.replace("9092", port))
    # A table of Spark's has an empty line behind it.
    shown = "\n".join(line.rstrip().replace(port, "9092") for line in lines).rstrip().splitlines()
    wanted = [line.rstrip() for line in step.expected]
    report = [f"$ {step.command}", "README says:", *wanted, "but it prints:", *shown]
    assert matches(wanted, shown), "\n".join(report)
    assert code == 0, step.command


def matches(wanted: list[str], shown: list[str]) -> bool:
    """Whether each line is as wanted; `...` is any text, and alone on a line any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else ".*?".join(map(re.escape, line.split("..."))) + r"\n"
        for line in wanted
    )
    return re.fullmatch(pattern, "".join(line + "\n" for line in shown)) is not None


def test_the_two_commands_are_each_one_line() -> None:
    readme = README.read_text()
    for name in ("demo", "tests"):
        block = re.search(rf"<!-- ci: {name} -->\n```bash\n(.*?)\n```", readme, re.S)
        assert block is not None
        assert "\n" not in block[1]


def python_blocks() -> list[str]:
    """The python blocks, in order."""
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)


def test_the_python_example_prints_the_output_in_the_readme(tmp_path: Path) -> None:
    printed = re.search(r"^```text\n(.*?)^```", README.read_text(), re.M | re.S)
    assert printed is not None
    script = tmp_path / "example.py"
    script.write_text(python_blocks()[0])
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=HANG_TIMEOUT_S, check=True
    )
    assert done.stdout == printed[1]


def test_the_fixture_example_passes(tmp_path: Path) -> None:
    test = tmp_path / "test_example.py"
    test.write_text(python_blocks()[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
