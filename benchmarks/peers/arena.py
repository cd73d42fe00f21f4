"""The arena: servers that run side by side, and rounds that take turns.

Owns how a round is run, verified and turned into figures. A way that fails leaves the contest, is
named with its reason, and does not stop the others.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.contestant import Contestant, Way
from benchmarks.peers.crowd import Client, Outcome, run_together
from benchmarks.peers.rows import Row, Skipped
from benchmarks.peers.scale import Case, Matrix, Scale
from benchmarks.peers.task import Task
from benchmarks.peers.values import expected_checksum
from benchmarks.session import Session

GIB = 1 << 30
MIB = 1 << 20
WARM_UP_SHARE = 20
"""Of the records of a round, that many times fewer are sent before the clock starts."""


class Mismatch(Exception):
    """A topic does not hold the records that were acked."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One round: its figures by name, and how many records were counted and checked."""

    figures: Mapping[str, float]
    checked: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A way in a contest, and what runs one round of it."""

    contestant: Contestant
    way: Way
    run: Callable[[], Measured]


class Arena:
    """What workloads are given. `contestants` run from the beginning to the end."""

    def __init__(
        self,
        session: Session,
        scale: Scale,
        matrix: Matrix,
        contestants: Sequence[Contestant],
        *,
        all_cases: bool = False,
    ) -> None:
        self.session = session
        self.scale = scale
        self.contestants = contestants
        self.skipped: list[Skipped] = []
        self.base_cases = matrix.whole() if all_cases else matrix.base()
        """The cases in which all ways run."""
        self.side_cases = [] if all_cases or not scale.side_rounds else matrix.sides()
        """The cases in which the main ways run."""
        self._numbers = itertools.count(1)

    def contest(
        self, workload: str, case: str, entries: Sequence[Entry], rounds: int, warm_ups: int = 0
    ) -> Iterator[Row]:
        """Runs the entries in turns, the first one another in each round; a row for each.

        Before the rounds that count come `warm_ups`, for a JVM's compiler.
        """
        running = list(entries)
        found: dict[str, list[Measured]] = {entry.way.name: [] for entry in entries}
        for number in range(-warm_ups, rounds):
            turn = number % max(len(running), 1)
            for entry in running[turn:] + running[:turn]:
                self.session.say(f"{workload}, {case}: {entry.way.name}, round {number + 1}")
                try:
                    measured = entry.run()
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    self.skip(f"{workload}, {case}: {entry.way.name}", reason, failed=True)
                    running.remove(entry)
                    continue
                if number >= 0:
                    found[entry.way.name].append(measured)
        for entry in running:
            yield _row(workload, case, entry, found[entry.way.name])

    def skip(self, what: str, reason: str, *, failed: bool = False) -> None:
        """Notes what did not run."""
        self.skipped.append(Skipped(what, reason, failed))
        self.session.say(f"{'failed' if failed else 'skipped'}: {what}: {reason}")

    @contextmanager
    def topic(
        self, contestant: Contestant, *, partitions: int = 1, durability: str
    ) -> Iterator[str]:
        """A new topic, deleted on leaving. The disk has what was written before."""
        name = self.new_name()
        contestant.create_topic(name, partitions=partitions, durability=durability)
        self.session.settle()
        try:
            yield name
        finally:
            contestant.delete_topic(name)

    @contextmanager
    def fresh(self, contestant: Contestant) -> Iterator[Contestant]:
        """Another server of the same kind, with an empty directory, not started."""
        directory = self.session.directory / self.new_name()
        made = type(contestant)(self.session, directory)
        try:
            yield made
        finally:
            made.kill()
            shutil.rmtree(directory, ignore_errors=True)

    def new_name(self) -> str:
        """A name that no topic, group or directory of this run has."""
        return f"bench-{next(self._numbers)}"

    def fill(
        self,
        contestant: Contestant,
        topic: str,
        case: Case,
        records: int,
        *,
        is_verified: bool = True,
    ) -> int:
        """Writes the same number of records to each partition; returns how many were acked.

        Raises `Mismatch` if they are verified and others are there.
        """
        way = next(way for way in contestant.writers if way.main)
        task = Task(
            contestant.servers,
            topic,
            way.method,
            range(case.partitions),
            max(records, case.partitions),
            value_bytes=case.value_bytes,
            compression=case.compression,
        )
        outcome = run_together(self.session, contestant, [Client(way.client, "fill", task)])
        if is_verified:
            each = outcome.records // case.partitions
            due = case.partitions * expected_checksum(case.value_bytes, each)
            self.verify(contestant, topic, case, outcome.records, due)
        return outcome.records

    def verify(
        self, contestant: Contestant, topic: str, case: Case, records: int, due: int | None
    ) -> None:
        """Reads a topic. Raises `Mismatch` unless count and checksum are right; None: any."""
        client, method = contestant.verifier
        task = Task(
            contestant.servers,
            topic,
            method,
            range(case.partitions),
            records,
            value_bytes=case.value_bytes,
        )
        (report,) = run_together(self.session, contestant, [Client(client, "verify", task)]).reports
        if report.records != records or report.value_bytes != records * case.value_bytes:
            raise Mismatch(f"{report.records} records are there where {records} were acked")
        if due is not None and report.checksum != due:
            raise Mismatch(f"the checksum of {records} records is not that of those sent")


def costs(outcome: Outcome) -> dict[str, float]:
    """The figures of a round that moves values as fast as it can."""
    gib = outcome.value_bytes / GIB
    return {
        "records/s": outcome.records / outcome.wall_s,
        "MiB/s": outcome.value_bytes / MIB / outcome.wall_s,
        "server CPU s/GiB": outcome.server_cpu_s / gib,
        "client CPU s/GiB": outcome.client_cpu_s / gib,
    }


def _row(workload: str, case: str, entry: Entry, rounds: Sequence[Measured]) -> Row:
    names = rounds[0].figures if rounds else ()
    return Row(
        workload,
        case,
        entry.way.name,
        entry.contestant.name,
        entry.way.durability,
        {name: [measured.figures[name] for measured in rounds] for name in names},
        sum(measured.checked for measured in rounds),
    )
