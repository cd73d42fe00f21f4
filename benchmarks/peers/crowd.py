"""The clients of a round: started, found ready, let go at once, and read.

Owns the children of a round and what they cost together. The CPU time of the server is taken from
the moment when the clients are let go until the last one has reported.
"""

from __future__ import annotations

import select
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.peers.contestant import Contestant
from benchmarks.peers.task import Report, Task
from benchmarks.processes import ProcessFailed, child, last_words, python_module
from benchmarks.session import Session

READY = "ready"
REPORT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Client:
    """One client process of a round: its module, what it does, and its task."""

    module: str
    verb: str
    task: Task


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the clients of a round did, in their order, and the CPU time of the server."""

    reports: Sequence[Report]
    server_cpu_s: float

    @property
    def wall_s(self) -> float:
        """From the first client's beginning to the last one's end."""
        return max(one.ended for one in self.reports) - min(one.began for one in self.reports)

    @property
    def records(self) -> int:
        """Of all clients."""
        return sum(one.records for one in self.reports)

    @property
    def value_bytes(self) -> int:
        """Of all clients."""
        return sum(one.value_bytes for one in self.reports)

    @property
    def client_cpu_s(self) -> float:
        """Of all clients."""
        return sum(one.cpu_s for one in self.reports)


class Member:
    """A running client."""

    def __init__(self, session: Session, client: Client, stack: ExitStack) -> None:
        self._session = session
        self._client = client
        command = python_module(
            "benchmarks.peers.clients", client.module, client.verb, client.task.to_json()
        )
        environment = {**session.checkout.environment}
        self._process: subprocess.Popen[str] = stack.enter_context(
            child(command, log=session.log, environment=environment)
        )

    def line(self) -> str:
        """The next line it prints. Raises `ProcessFailed` if it ends, or takes too long."""
        assert self._process.stdout is not None
        # Each line is flushed and awaited before the next, so nothing is left in a buffer.
        found, _, _ = select.select([self._process.stdout], [], [], REPORT_TIMEOUT_S)
        text = self._process.stdout.readline() if found else ""
        if not text.endswith("\n"):
            what = f"{self._client.module} {self._client.verb} {self._client.task.topic}"
            ending = f"exit code {self._process.poll()}, a line of {len(text)} characters"
            raise ProcessFailed(f"{what}: {ending}: {last_words(self._session.log)}")
        return text.rstrip("\n")

    def until_ready(self) -> None:
        """Waits until it is ready to be let go."""
        if (text := self.line()) != READY:
            raise ProcessFailed(f"a client printed {text!r} where {READY!r} was due")

    def let_go(self) -> None:
        """Lets it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def report(self) -> Report:
        """What it has done."""
        return Report.from_json(self.line())


def run_together(session: Session, contestant: Contestant, clients: Sequence[Client]) -> Outcome:
    """Starts all clients, lets them go at once and reads their reports."""
    with ExitStack() as stack:
        members = [Member(session, client, stack) for client in clients]
        for member in members:
            member.until_ready()
        before_s = contestant.cpu_s()
        for member in members:
            member.let_go()
        reports = [member.report() for member in members]
        return Outcome(reports, contestant.cpu_s() - before_s)
