"""The real command, as a process or in this one, and a broker to talk to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from millrace_cli.main import app_for
from tests.command_line import COMMAND
from tests.free_ports import free_ports
from tests.hang_timeout import HANG_TIMEOUT_S


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-pictures", action="store_true", help="write what is shown today")


@dataclass
class Millrace:
    """Runs `millrace` against one broker."""

    servers: str
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str) -> Result:
        """In this process: fast, stdin is empty."""
        environment = {"MILLRACE_SERVERS": self.servers, **self.environment}
        return CliRunner().invoke(app_for(arguments), list(arguments), env=environment)

    def process(
        self,
        *arguments: str,
        stdin: bytes = b"",
        cwd: Path | None = None,
        timeout_s: float = HANG_TIMEOUT_S,
    ) -> subprocess.CompletedProcess[bytes]:
        """As a process, with `stdin` as a pipe."""
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            timeout=timeout_s,
            env={**os.environ, "MILLRACE_SERVERS": self.servers, **self.environment},
        )

    @contextmanager
    def running(
        self, *arguments: str, stdin: int | None = None, stdout: int = subprocess.PIPE
    ) -> Iterator[subprocess.Popen[bytes]]:
        """As a process, killed on leaving."""
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, "MILLRACE_SERVERS": self.servers, **self.environment},
        )
        with process:
            try:
                yield process
            finally:
                process.kill()


@dataclass
class Serving:
    """A `millrace serve` process that has printed its address."""

    process: subprocess.Popen[bytes]
    first_line: str

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.first_line.removeprefix("listening on ").rpartition(":")
        return host, int(port)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.address[1]}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Sends a signal; returns the exit code and stderr."""
        self.process.send_signal(number)
        _, stderr = self.process.communicate(timeout=HANG_TIMEOUT_S)
        return self.process.returncode, stderr.decode()


Serve = Callable[..., AbstractContextManager[Serving]]


@contextmanager
def serving(
    *flags: str,
    before: Callable[[], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Serving]:
    """A broker process on a free port, killed on leaving."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--listen", "127.0.0.1:0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=before,
        env={**os.environ, **(environment or {})},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode().rstrip("\n")
        if not line:
            _, stderr = process.communicate(timeout=HANG_TIMEOUT_S)
            pytest.fail(f"serve ended with {process.returncode}: {stderr.decode()}")
        yield Serving(process, line)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`with serve(*flags) as serving`: a broker process on `tmp_path/data`."""
    return partial(serving, "--data", str(tmp_path / "data"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One broker for all tests of a run, each of which takes topics of its own.

    A process: what a broker in this one logs would mix with what commands print.
    """
    data = tmp_path_factory.mktemp("broker")
    # The first member of a group does not wait for others.
    environment = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    with serving("--data", str(data), "--log-level", "error", environment=environment) as running:
        yield running


@pytest.fixture
def millrace(broker: Serving) -> Millrace:
    """The command line, told of the broker."""
    return Millrace(broker.servers)


@pytest.fixture
def topic(millrace: Millrace, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions, named for the test. It keeps records of old times."""
    name: str = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    created = millrace("topic", "create", name, "--partitions", "2", "-c", "retention.ms=-1")
    assert created.exit_code == 0, created.output
    return name


@pytest.fixture(scope="session")
def closed_port() -> Iterator[str]:
    """HOST:PORT where no server listens."""
    with socket.socket() as probe:
        # Bound and not listening: connections are refused, and no other process can take the port.
        probe.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def voters(closed_port: str) -> list[str]:
    """Flags of a broker whose two companions are not there."""
    port = free_ports(2)
    quorum = f"1@127.0.0.1:{port},2@{closed_port},3@{closed_port}"
    flags = ["--node-id", "1", "--listen", f"127.0.0.1:{port + 1}", "--quorum", quorum]
    return [*flags, "--log-format", "json"]
