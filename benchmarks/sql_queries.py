"""One query over the flights: `millrace sql` on a topic, and DuckDB on the same rows as files.

Owns the rows, as records, JSON lines and Parquet, and the processes. Each run is a process of its
own, from its start to its end, and must print the same table. Memory is the peak that the kernel
reports for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from subprocess import run as run_process

from benchmarks.broker import RunningBroker, running_broker
from benchmarks.processes import ProcessFailed, last_words
from benchmarks.results import Fact, Row
from benchmarks.samples import Spread
from benchmarks.session import MIB, Session

GROUP = "sql"
TOPIC = "flights"
PARTITIONS = 4
CHUNK_ROWS = 20_000
HOURLY = (
    "SELECT hour, count(*) AS departures, CAST(sum(dep_delay) AS bigint) AS minutes FROM {} "
    "WHERE dep_delay IS NOT NULL GROUP BY 1 ORDER BY 1"
)
_MEASURED = """
import resource, subprocess, sys, time
started = time.perf_counter()
subprocess.run(sys.argv[1:], check=True)
seconds = time.perf_counter() - started
print(end=f"\\0{seconds} {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}")
"""
"""Runs a command and appends its seconds and peak memory to its output. A process of its own,
because the kernel counts the memory of a child's parent before the child has begun."""
_DUCKDB = """
import sys, duckdb
for row in duckdb.execute(sys.argv[1]).fetchall():
    print(*row, sep="\\t")
"""


@dataclass(frozen=True, slots=True)
class QueryRun:
    """One process: seconds from its start to its end, and its peak memory."""

    seconds: float
    peak_mib: float
    printed: str


def run(session: Session) -> Iterator[Row]:
    """Times and memory of the hourly table, from a topic and from files."""
    # The harness runs without these libraries too.
    from millrace.sync import Admin

    with running_broker(session, "sql") as broker:
        with Admin(broker.servers) as admin:
            admin.create_topic(
                TOPIC, partitions=PARTITIONS, configs={"retention.ms": -1, "durability": "os"}
            )
        session.say("sql: writing the flights")
        lines, parquet = _write(session, broker)
        contestants = session.entrants(
            {
                "millrace sql": (
                    *session.checkout.serve[:-1],
                    *("sql", HOURLY.format(TOPIC), "--servers", broker.servers),
                ),
                "DuckDB on JSON lines": _duckdb(f"read_json('{lines}')"),
                "DuckDB on Parquet": _duckdb(f"read_parquet('{parquet}')"),
            }
        )
        yield from _facts(session, contestants)


def _facts(session: Session, contestants: Mapping[str, Sequence[str]]) -> Iterator[Row]:
    runs: dict[str, list[QueryRun]] = {name: [] for name in contestants}
    for _ in range(session.scale.starts):
        for name, command in contestants.items():
            session.say(f"sql: {name}")
            runs[name].append(_run(session, command))
    tables = {each.printed for some in runs.values() for each in some}
    if len(tables) != 1 or not tables.pop():
        raise ProcessFailed("the queries printed different tables")
    rows = f"{session.scale.sql_rows:,}".replace(",", " ") + " flights, grouped by hour"
    for name, some in runs.items():
        seconds = Spread.of([each.seconds for each in some])
        yield Fact(GROUP, f"{name}: the whole process", "s", seconds, note=rows)
    for name, some in runs.items():
        peak = Spread.of([each.peak_mib for each in some])
        yield Fact(GROUP, f"{name}: peak memory", "MiB", peak)


def _write(session: Session, broker: RunningBroker) -> tuple[Path, Path]:
    """Writes the rows to the topic, and as JSON lines and Parquet; returns both files."""
    import duckdb

    from millrace.sync import Producer
    from millrace_cli.demo.flights import flight_records, flights_file

    lines = session.directory / "flights.jsonl"
    parquet = session.directory / "flights.parquet"
    with Producer(broker.servers) as producer, lines.open("wb") as file:
        for part in flight_records(
            flights_file(), limit=session.scale.sql_rows, chunk_rows=CHUNK_ROWS
        ):
            producer.post_many(TOPIC, part.values, keys=part.keys, timestamps_ms=part.timestamps_ms)
            file.writelines(value + b"\n" for value in part.values)
    duckdb.execute(f"COPY (FROM read_json('{lines}')) TO '{parquet}' (FORMAT parquet)")
    return lines, parquet


def _duckdb(table: str) -> Sequence[str]:
    return (sys.executable, "-P", "-c", _DUCKDB, HOURLY.format(table))


def _run(session: Session, command: Sequence[str]) -> QueryRun:
    environment = {**os.environ, **session.checkout.environment}
    with session.log.open("a") as log:
        done = run_process(
            [sys.executable, "-S", "-c", _MEASURED, *command],
            stdout=PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
    if done.returncode != 0:
        raise ProcessFailed(f"a query ended with {done.returncode}: {last_words(session.log)}")
    printed, _, figures = done.stdout.rpartition("\0")
    seconds, peak_kib = figures.split()
    return QueryRun(float(seconds), int(peak_kib) * 1024 / MIB, printed)
