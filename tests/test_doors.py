"""The seams of `millrace_server.environment` are the only ways out; the checks of that work.

Imports are checked by the contracts in `pyproject.toml`, calls of modules by ruff. What is left is
what the event loop can do by itself: its methods are known by name here.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import millrace_server

ROOT = Path(__file__).parents[1]
SERVER = Path(millrace_server.__file__).parent
_LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
LOOP_DOORS: dict[str, tuple[str, ...]] = {
    # Spawn.
    "TaskGroup": (),
    # A test reads what its processes write.
    "create_task": ("machine", "net.listener", "testing.broker_process"),
    "ensure_future": (),
    "run_in_executor": (),
    "set_default_executor": (),
    # A worker thread hands over its result; a broker in a thread of a test talks to its loop.
    "call_soon_threadsafe": ("disk.worker_threads", "testing.loop_thread"),
    "run_coroutine_threadsafe": ("testing.loop_thread",),
    # Clock. What only waits asks the loop for it, and gives it a time that has passed.
    # A link of a test that is slow delivers later.
    "time": ("testing.delay_line",),
    "call_at": ("testing.delay_line",),
    # Net.
    # A test asks its brokers as a client does.
    "create_connection": ("net.listener", "testing.cluster_view"),
    "create_datagram_endpoint": (),
    "create_server": (),
    "create_unix_connection": (),
    "create_unix_server": (),
    "getaddrinfo": ("net.listener",),
    "getnameinfo": (),
    "sendfile": ("net.socket_transport",),
    "start_tls": (),
    # Connections are waited for, and room in a socket that is full.
    # The process of a test is told of faults.
    "add_reader": ("net.listener", "net.handshake_queue", "testing.faulty_serve"),
    "add_writer": ("net.socket_transport",),
    # The process.
    "add_signal_handler": ("process_signals",),
    "connect_read_pipe": (),
    "connect_write_pipe": (),
    "subprocess_exec": (),
    "subprocess_shell": (),
}
"""What the loop can do for code that has it, by name, and the modules that may have it done."""
PASSED_BY = """\
import asyncio
import datetime
import random
import uuid
from asyncio import to_thread  # refused


async def passed_by() -> None:
    await asyncio.to_thread(print)  # refused
    await asyncio.open_connection("host", 1)  # refused
    await asyncio.start_server(print, "host", 1)  # refused
    asyncio.new_event_loop()  # refused
    datetime.datetime.now()  # refused
    datetime.datetime.fromtimestamp(0, datetime.UTC)
    random.random()  # refused
    random.shuffle([])  # refused
    random.Random(7).random()
    uuid.uuid4()  # refused
    uuid.UUID(int=7)
    open("file")  # refused
"""


def _uses(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def _found() -> set[tuple[str, str]]:
    """Pairs of a name in `LOOP_DOORS` and a module that uses it."""
    found = set()
    for path in SERVER.rglob("*.py"):
        module = ".".join(path.relative_to(SERVER).with_suffix("").parts)
        found |= {(name, module) for name in _uses(path) if name in LOOP_DOORS}
    return found


def test_the_loop_is_asked_for_tasks_threads_and_connections_at_the_doors_alone() -> None:
    doors = {(name, module) for name, modules in LOOP_DOORS.items() for module in modules}
    assert _found() == doors


def test_calls_that_pass_the_doors_by_are_refused_in_broker_code() -> None:
    marked = {
        number for number, line in enumerate(PASSED_BY.splitlines(), 1) if "# refused" in line
    }
    assert _refused_lines("server/millrace_server/services/planted.py") == marked
    assert _refused_lines("clients/millrace/planted.py") == marked


def _refused_lines(file_name: str) -> set[int]:
    """Where ruff would complain if `PASSED_BY` stood in a file of that name."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise"),
            *("--select", "TID251,PTH123", "--stdin-filename", file_name, "-"),
        ],
        input=PASSED_BY,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    found = re.findall(rf"^{re.escape(file_name)}:(\d+):", done.stdout, re.MULTILINE)
    return {int(number) for number in found}


@pytest.mark.parametrize(
    ("contract", "planted"),
    [
        ("server-doors", "server/millrace_server/services/planted.py"),
        ("client-doors", "clients/millrace/planted.py"),
        ("protocol-doors", "protocol/millrace_protocol/planted.py"),
        ("wire-doors", "protocol/millrace_wire/planted.py"),
    ],
)
def test_an_import_of_the_outside_breaks_a_contract(
    contract: str, planted: str, tmp_path: Path
) -> None:
    roots = ("protocol", "server", "clients", "spark_connector")
    for root in roots:
        shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert "KEPT" in _contract(contract, tmp_path, roots)
    (tmp_path / planted).write_text("def late() -> None:\n    import time\n")
    assert "planted -> time (l.2)" in _contract(contract, tmp_path, roots)


def _contract(contract: str, directory: Path, roots: tuple[str, ...]) -> str:
    """What import-linter says of the sources in a directory."""
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-c",
                "from importlinter.cli import lint_imports_command as run; run()",
            ),
            *("--config", "pyproject.toml", "--no-cache", "--contract", contract),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(directory / root) for root in roots)},
    )
    return done.stdout
