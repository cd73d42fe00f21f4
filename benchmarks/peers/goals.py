"""What millrace is to reach beside Apache Kafka with confluent-kafka: the page's first table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.peers.rows import Row, Run, ratio
from benchmarks.peers.scale import KIB, Case
from benchmarks.peers.workloads import disk, latency, lifecycle
from benchmarks.samples import Spread


@dataclass(frozen=True, slots=True)
class Goal:
    """One line: a figure of ours divided by theirs, or by itself, against a limit.

    `theirs` None: the figure of ours is held against the limit, and `beside` is shown for scale.
    """

    title: str
    workload: str
    case: str
    figure: str
    ours: str
    theirs: str | None
    limit: float
    at_least: bool = False
    beside: str | None = None

    @property
    def limit_text(self) -> str:
        """As in `≥ 2.2`."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Result:
    """A goal and what was found: both figures, their ratio, and whether the median reaches it.

    None: the row did not run.
    """

    goal: Goal
    ours: Spread | None
    theirs: Spread | None
    ratio: Spread | None

    @property
    def reached(self) -> Spread | None:
        """What is held against the limit."""
        return self.ours if self.goal.theirs is None else self.ratio

    @property
    def met(self) -> bool | None:
        """None where nothing was measured."""
        found = self.reached
        if found is None:
            return None
        if self.goal.at_least:
            return found.median >= self.goal.limit
        return found.median <= self.goal.limit


SMALL, KILOBYTE = Case().title, Case(KIB).title
CONFLUENT = "Kafka, confluent"
PRODUCE, CONSUME, POLL = f"{CONFLUENT} produce", f"{CONFLUENT} consume", f"{CONFLUENT} poll"
RATE, CPU = "records/s", "server CPU s/GiB"


def _of_rates() -> Iterator[Goal]:
    for ours, limit in (("send_many", 2.2), ("send", 1.5)):
        way = f"millrace {ours}"
        title = f"Produce 100 B, {ours}"
        yield Goal(title, "produce", SMALL, RATE, way, PRODUCE, limit, at_least=True)
    title = "Produce 100 B, send_many with our fsync, Kafka without"
    ours = "millrace send_many, fsync"
    yield Goal(title, "produce", SMALL, RATE, ours, PRODUCE, 1.0, at_least=True)
    consumes = [
        ("100 B", SMALL, "Arrow", CONSUME, 3.0),
        ("100 B", SMALL, "async for", POLL, 1.2),
        ("1 KiB", KILOBYTE, "Arrow", CONSUME, 1.2),
        ("1 KiB", KILOBYTE, "batches", CONSUME, 1.2),
        ("1 KiB", KILOBYTE, "values()", CONSUME, 1.2),
        ("1 KiB", KILOBYTE, "async for", POLL, 1.2),
    ]
    for size, case, name, theirs, limit in consumes:
        title, ours = f"Consume {size}, {name}", f"millrace {name}"
        yield Goal(title, "consume", case, RATE, ours, theirs, limit, at_least=True)


def _of_costs() -> Iterator[Goal]:
    for figure, limit in (("p50 ms", 1.0), ("p99 ms", 0.5)):
        for suffix, what in (("", "page cache"), (", fsync", "fsync")):
            title = f"End to end at 1,000/s, {figure[:3]}, {what}"
            theirs = CONFLUENT + suffix
            ours = f"millrace{suffix}"
            yield Goal(title, "latency", latency.STEADY, figure, ours, theirs, limit)
    title = "Broker CPU per GiB in, 1 KiB"
    yield Goal(title, "produce", KILOBYTE, CPU, "millrace send_many", PRODUCE, 0.3)
    title = "Broker CPU per GiB out, 1 KiB"
    yield Goal(title, "consume", KILOBYTE, CPU, "millrace Arrow", CONSUME, 0.5)
    for suffix, limit in (("", 80.0), (", fsync", 150.0)):
        yield Goal(
            f"Broker CPU per record at 1,000/s, no batching{suffix}",
            "latency",
            latency.STEADY,
            "server CPU µs/record",
            f"millrace{suffix}",
            None,
            limit,
            beside=CONFLUENT + suffix,
        )
    for figure, limit in ((disk.AT_REST, 1.1), (disk.UNDER_LOAD, 1.25)):
        title = f"8 busy partitions {figure}"
        ours = "millrace send_many"
        yield Goal(title, "disk", disk.TITLE, figure, ours, None, limit, beside=PRODUCE)
    alone = lifecycle.title(1)
    for figure, limit in (
        (lifecycle.FIRST_ACK, 0.5),
        (lifecycle.RESIDENT, 80),
        (lifecycle.IDLE, 0.5),
    ):
        title = figure[0].upper() + figure[1:]
        ours = "millrace send_many"
        yield Goal(title, "lifecycle", alone, figure, ours, None, limit, beside=PRODUCE)


def _of_spark() -> Iterator[Goal]:
    for sink, limit in (("noop", 2.0), ("Parquet", 1.5)):
        case = f"read 1 KiB to {sink}"
        ours, theirs = "millrace's connector", "Spark's Kafka source"
        yield Goal(f"Spark, {case}", "spark", case, "rows/s", ours, theirs, limit, at_least=True)


GOALS = (*_of_rates(), *_of_costs(), *_of_spark())


def results(run: Run) -> list[Result]:
    """Every goal with what a run found of it."""
    return [_result(run, goal) for goal in GOALS]


def _result(run: Run, goal: Goal) -> Result:
    ours = _row(run, goal, goal.ours)
    theirs = _row(run, goal, goal.theirs or goal.beside)
    return Result(
        goal,
        None if ours is None else ours.spread(goal.figure),
        None if theirs is None else theirs.spread(goal.figure),
        ratio(ours, theirs, goal.figure) if ours and theirs and goal.theirs else None,
    )


def _row(run: Run, goal: Goal, way: str | None) -> Row | None:
    """The row that has the goal's figure."""
    row = run.find(goal.workload, goal.case, way) if way else None
    return row if row is not None and row.figures.get(goal.figure) else None
