"""The broker under test: `millrace serve` in a process of its own, on loopback."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import READY_TIMEOUT_S, ProcessFailed, child, last_words
from benchmarks.session import Session
from benchmarks.wire import Address, BrokerConnection, UnexpectedResponse

POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that has responded; `ready_s` is from the start of its process to that response.

    `started` is when its process was started, on the clock of `time.perf_counter`.
    """

    address: Address
    pid: int
    started: float
    ready_s: float

    @property
    def servers(self) -> str:
        """The address as clients take it."""
        return f"{self.address[0]}:{self.address[1]}"

    def connect(self) -> BrokerConnection:
        """A new raw connection, past Hello."""
        return BrokerConnection(self.address)


@contextlib.contextmanager
def running_broker(
    session: Session,
    name: str,
    *,
    connections_max: int = 1_000,
    log_level: str = "warning",
    tls_port: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[RunningBroker]:
    """Starts a broker on the data directory called `name`, and stops it on leaving.

    With `tls_port` it has a listener with TLS as well. `settings` are MILLRACE_* variables beside
    those of every broker here. What it logs goes to the session's log, a line of JSON for each
    event.
    """
    port = _free_port()
    environment = {
        **broker_environment(session, session.directory / name, port),
        "MILLRACE_LOG_LEVEL": log_level,
        "MILLRACE_LIMITS__CONNECTIONS_MAX": str(connections_max),
        **({} if tls_port is None else {"MILLRACE_LISTEN": _both(port, tls_port)}),
        **(settings or {}),
    }
    started = time.perf_counter()
    command = session.checkout.serve
    with child(command, log=session.log, environment=environment, talks=False) as process:
        address = ("127.0.0.1", port)
        ready_s = _first_response_s(process, address, started, session.log)
        yield RunningBroker(address, process.pid, started, ready_s)


def _both(port: int, tls_port: int) -> str:
    return f"127.0.0.1:{port}, tls://127.0.0.1:{tls_port}"


def broker_environment(session: Session, data: Path, port: int) -> dict[str, str]:
    """Variables that override those of the environment: a figure must not depend on them."""
    return {
        **session.checkout.environment,
        "MILLRACE_DATA": str(data),
        "MILLRACE_LISTEN": f"127.0.0.1:{port}",
        "MILLRACE_LOG_LEVEL": "warning",
        "MILLRACE_LOG_FORMAT": "json",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def _first_response_s(
    process: subprocess.Popen[str], address: Address, started: float, log: Path
) -> float:
    """Seconds from `started` until the broker responds to a Hello. Raises `ProcessFailed`."""
    while True:
        try:
            BrokerConnection(address).close()
        except (OSError, UnexpectedResponse):
            if process.poll() is not None:
                raise ProcessFailed(f"millrace serve ended: {last_words(log)}") from None
            if time.perf_counter() - started > READY_TIMEOUT_S:
                raise ProcessFailed(
                    f"millrace serve did not respond within {READY_TIMEOUT_S} s: {last_words(log)}"
                ) from None
            time.sleep(POLL_S)
        else:
            return time.perf_counter() - started
