"""Processes under test: how one is started, found ready, measured and stopped.

Owns children of the harness and their CPU clocks. Every server that is measured runs in a process
of its own, so that its CPU time is its own and its interpreter lock too.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.samples import Sample

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0


class ProcessFailed(Exception):
    """A child ended, or stayed silent, where a response was due; holds what it wrote last."""


def process_cpu_s(pid: int) -> float:
    """CPU seconds, in nanosecond steps, that a process has used in all its threads so far."""
    # The kernel's encoding of another process' CPU clock; man 3 clock_getcpuclockid.
    return time.clock_gettime((~pid << 3) | 2)


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and of all below it, those that have ended included.

    Of one that has ended, in steps of the kernel's clock tick, 10 ms as a rule.
    """
    parents: dict[int, list[int]] = {}
    ended_ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name of a program, in brackets, may have spaces and brackets itself.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            ended_ticks[int(entry.name)] = int(fields[13]) + int(fields[14])
    total = 0.0
    waiting = [pid]
    while waiting:
        found = waiting.pop()
        with contextlib.suppress(OSError):
            total += process_cpu_s(found) + ended_ticks[found] / os.sysconf("SC_CLK_TCK")
        waiting += parents.get(found, [])
    return total


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM, shared pages included."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def raise_open_files_limit() -> int:
    """Raises the soft limit of open files to the hard one, for children too; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def measured(
    pid: int,
    units: float,
    work: Callable[[], object],
    *,
    cpu_s: Callable[[int], float] = process_cpu_s,
) -> Sample:
    """Runs `work` and returns its wall time beside the CPU time that process `pid` took for it.

    `cpu_s` is `process_cpu_s`, or `tree_cpu_s` where its children work for it.
    """
    cpu = cpu_s(pid)
    wall = time.perf_counter()
    work()
    wall = time.perf_counter() - wall
    return Sample(units, wall, cpu_s(pid) - cpu)


@contextlib.contextmanager
def child(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    talks: bool = True,
) -> Iterator[subprocess.Popen[str]]:
    """A process with a pipe to its stdin, terminated on leaving.

    If it `talks`, its stdout is a pipe to be read here. All else that it writes goes to `log`. A
    child that does not end within `STOP_TIMEOUT_S` is killed.
    """
    inherited = dict(os.environ)
    # An installed broker has its modules compiled, whatever the shell of this run says. Compiling
    # them is a fifth of its start.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    with log.open("a") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if talks else errors,
            stderr=errors,
            text=True,
            env={**inherited, **(environment or {})},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this repository in a fresh interpreter."""
    return [sys.executable, "-m", module, *arguments]


def read_line(process: subprocess.Popen[str], log: Path) -> str:
    """The next line a child prints. Raises `ProcessFailed` when it ends instead."""
    if process.stdout is None:
        raise ValueError("the child was started without a pipe from its stdout")
    line = process.stdout.readline()
    if not line:
        raise ProcessFailed(f"a child process ended early: {last_words(log)}")
    return line.rstrip("\n")


def last_words(log: Path) -> str:
    """The last line of a log, for a sentence about what went wrong."""
    lines = log.read_text().splitlines() if log.exists() else []
    return lines[-1] if lines else "it wrote nothing"
