"""A page of documents as a script: its code blocks, run from top to bottom in one directory.

    ```console          lines after `$ ` are typed into one shell, `> ` continues a line; what
                        follows is their output
    ```LANG title="F"   the content of the file F
    ```python           a program; with no console block between them, blocks are one program
    ```text             the output of the program before it

In expected output `...` stands for any text within a line, and alone on a line for any lines. The
only things changed are the ports, so that the tests do not need 9092 and those behind it, `nc` and
`curl`, which need not be installed: a stand-in of ten lines takes the place of each, and how long
the first member of a group waits for others.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.command_line import write_script
from tests.free_ports import free_ports
from tests.hang_timeout import HANG_TIMEOUT_S

ROOT = Path(__file__).parents[1]
PORT = 9092
"""The port of the broker in all documents, and the first one of a cluster."""
PORTS = 7
"""Those of a cluster of three brokers, and one for metrics."""
METRICS_PORT = 9464
"""Where a broker answers HTTP in all documents: the last of these ports."""
BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
_END = "END OF BLOCK"
_NC = """#!{python}
import socket, sys
connection = socket.create_connection((sys.argv[-2], int(sys.argv[-1])))
connection.sendall(sys.stdin.buffer.read())
connection.shutdown(socket.SHUT_WR)
while data := connection.recv(65536):
    sys.stdout.buffer.write(data)
"""
_CURL = """#!{python}
import sys, urllib.error, urllib.request
url = sys.argv[-1] if "://" in sys.argv[-1] else "http://" + sys.argv[-1]
try:
    response = urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(url)
except urllib.error.HTTPError as error:
    response = error
sys.stdout.buffer.write(response.read())
"""


@dataclass
class Step:
    """One line typed, or a program or a file, and what must follow."""

    command: str
    expected: list[str] = field(default_factory=list)


def steps(text: str) -> list[Step]:
    """The blocks of a page, or of a part of one, in order. Raises `ValueError` for one that is not
    run."""
    found: list[Step] = []
    programs: dict[int, str] = {}
    for language, title, body in BLOCK.findall(text):
        if title:
            found.append(Step(f"cat > {shlex.quote(title)} <<'{_END}'\n{body}{_END}"))
        elif language == "console":
            _add_lines(found, body)
        elif language == "python":
            if len(found) - 1 not in programs:
                found.append(Step(""))
            index = len(found) - 1
            programs[index] = programs.get(index, "") + body
            found[-1].command = f"python - <<'{_END}'\n{programs[index]}{_END}"
        elif language == "text" and len(found) - 1 in programs:
            found[-1].expected += body.splitlines()
        else:
            raise ValueError(f"this block is not run:\n```{language}\n{body}```")
    return found


def _add_lines(found: list[Step], body: str) -> None:
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(Step(line.removeprefix("$ ")))
        elif line.startswith("> ") and not found[-1].expected:
            found[-1].command += "\n" + line.removeprefix("> ")
        else:
            found[-1].expected.append(line)


class Shell:
    """One bash for a page, so that background jobs and files stay."""

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


@contextmanager
def page_shell(directory: Path) -> Iterator[Shell]:
    """A shell in an empty directory, with the commands that documents use."""
    binaries = directory / "bin"
    binaries.mkdir()
    for name, program in (("nc", _NC), ("curl", _CURL)):
        stand_in = binaries / name
        stand_in.write_text(program.format(python=sys.executable))
        stand_in.chmod(0o755)
    write_script(binaries)
    work = directory / "work"
    work.mkdir()
    (work / "examples").symlink_to(ROOT / "examples")
    path = os.pathsep.join([str(binaries), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "TERM": "dumb"}
    # Users have buffers, and so a chance of lines in another order.
    environment.pop("PYTHONUNBUFFERED", None)
    shell = Shell(work, environment)
    try:
        yield shell
    finally:
        shell.close()


def free_port(shell: Shell, *, ports: int = 1) -> int:
    """The first of the ports that brokers of the page will have; its commands are told of it."""
    port = free_ports(ports)
    use_port(shell, port)
    return port


def use_port(shell: Shell, port: int) -> None:
    """Tells the commands of a page which port has its broker."""
    shell.run(f"export MILLRACE_SERVERS=localhost:{port} MILLRACE_LISTEN=127.0.0.1:{port}")
    shell.run("export MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS=0")


def check(shell: Shell, step: Step, port: int) -> None:
    """Types a line, and compares."""
    ports = {str(PORT + behind): str(port + behind) for behind in range(PORTS - 1)}
    ports[str(METRICS_PORT)] = str(port + PORTS - 1)
    lines, code = shell.run(_moved(step.command, ports))
    documented = {there: here for here, there in ports.items()}
    # A table of Spark's has an empty line behind it.
    shown = "\n".join(_moved(line.rstrip(), documented) for line in lines).rstrip().splitlines()
    wanted = [line.rstrip() for line in step.expected]
    report = [f"$ {step.command}", "The page says:", *wanted, "but it prints:", *shown]
    assert matches(wanted, shown), "\n".join(report)
    assert code == 0, step.command


def _moved(text: str, ports: Mapping[str, str]) -> str:
    """The text with other ports."""
    return re.sub("|".join(ports), lambda found: ports[found[0]], text)


def matches(wanted: list[str], shown: list[str]) -> bool:
    """Whether each line is as wanted; `...` is any text, and alone on a line any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else ".*?".join(map(re.escape, line.split("..."))) + r"\n"
        for line in wanted
    )
    return re.fullmatch(pattern, "".join(line + "\n" for line in shown)) is not None
