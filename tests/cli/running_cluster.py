"""A local cluster of `millrace cluster start`, as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Millrace
from tests.command_line import COMMAND
from tests.hang_timeout import HANG_TIMEOUT_S


@dataclass
class RunningCluster:
    """A `millrace cluster start` that has printed where its brokers listen."""

    process: subprocess.Popen[str]
    directory: Path
    millrace: Millrace
    environment: dict[str, str]
    """Settings of the brokers."""
    beside: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Brokers of the cluster that tests have started themselves."""

    def run_beside(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts a command that ends with the cluster."""
        nothing = subprocess.DEVNULL
        environment = {**os.environ, **self.environment}
        process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=nothing, stderr=nothing, env=environment
        )
        self.beside.append(process)
        return process

    def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Watches the status until it is so."""
        with self.millrace.running("cluster", "status", "--watch", "--json") as watch:
            assert watch.stdout is not None
            for line in watch.stdout:
                status: dict[str, Any] = json.loads(line)
                if is_so(status):
                    return status
            assert watch.stderr is not None
            raise AssertionError(f"the watch ended: {watch.stderr.read().decode()}")

    def stderr_line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def stop(self) -> tuple[int, str]:
        """Stops the cluster in order; the exit code, and the rest of stderr."""
        self.process.send_signal(signal.SIGTERM)
        _, stderr = self.process.communicate(timeout=HANG_TIMEOUT_S)
        return self.process.returncode, stderr


@contextmanager
def started(directory: Path, *flags: str, **environment: str) -> Iterator[RunningCluster]:
    """A local cluster, killed on leaving if it was not stopped."""
    process = subprocess.Popen(
        [*COMMAND, "cluster", "start", "--data", str(directory), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MILLRACE_LISTEN": "ignored:1", **environment},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"start ended: {process.communicate()[1]}")
        servers = line.removeprefix("listening on ").rstrip("\n")
        running = RunningCluster(process, directory, Millrace(servers), environment)
        yield running
        for broker in running.beside:
            broker.terminate()
            broker.wait(HANG_TIMEOUT_S)
    finally:
        process.terminate()
        process.communicate()
