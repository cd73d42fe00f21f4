"""Spark: batch read, write and stream of its own Kafka source beside millrace's connector.

All run in one session. Kafka's jar is fetched once by Spark into the cache of `apache_kafka`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from benchmarks.apache_kafka import cache_directory
from benchmarks.checkout import ROOT
from benchmarks.peers.arena import GIB, MIB, Arena, Entry, Measured, Mismatch
from benchmarks.peers.contestant import Contestant, Way
from benchmarks.peers.rows import Row
from benchmarks.peers.scale import KIB, Case, size_title
from benchmarks.peers.spark_driver import STOPPED
from benchmarks.peers.values import expected_checksum
from benchmarks.processes import child, python_module
from benchmarks.samples import Sample
from benchmarks.spark_process import SparkDriver

NAME = "spark"
HEADING = "Spark"
SOURCE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""The newest that was published; Spark 4.3 loads it."""
CASE = Case(KIB, partitions=4)
WAYS = {
    "millrace": Way("millrace's connector", "spark", "millrace"),
    "Apache Kafka": Way("Spark's Kafka source", "spark", "kafka"),
}
READS = (("read", "noop"), ("read", "Parquet"), ("stream", "noop"))


def run(arena: Arena) -> Iterator[Row]:
    """Needs pyspark and Java; the checksum of what is read is checked before the rounds."""
    contestants = [one for one in arena.contestants if one.name in WAYS]
    if importlib.util.find_spec("pyspark") is None:
        arena.skip(NAME, "pyspark is not installed: pip install 'millrace[spark]'")
        return
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        arena.skip(NAME, "no java on the PATH: Spark needs Java 17 or newer")
        return
    size = size_title(CASE.value_bytes)
    with _driver(arena, contestants) as driver, ExitStack() as stack:
        topics = {}
        for one in contestants:
            topics[one.name] = stack.enter_context(_topic(arena, one))
            records = arena.fill(one, topics[one.name], CASE, arena.scale.spark_rows)
            _check_digest(driver, one, topics[one.name], records)
        for verb, sink in READS:
            rounds = [
                (one, partial(_read, arena, driver, one, verb, topics[one.name], sink))
                for one in contestants
            ]
            yield from _contest(arena, f"{verb} {size} to {sink}", rounds)
        writes = [(one, partial(_write, arena, driver, one)) for one in contestants]
        yield from _contest(arena, f"write {size}", writes)


@contextmanager
def _driver(arena: Arena, contestants: Sequence[Contestant]) -> Iterator[SparkDriver]:
    """A Spark session, with Kafka's source where there is Kafka."""
    arena.session.say(f"{NAME}: starting a session")
    directory = arena.session.directory / "spark"
    directory.mkdir()
    # For the workers, which look for the modules of this package by themselves.
    inherited = (arena.session.checkout.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH"))
    path = os.pathsep.join([str(ROOT), *filter(None, inherited)])
    package = SOURCE if any(WAYS[one.name].method == "kafka" for one in contestants) else ""
    cache = cache_directory() / "spark-ivy"
    command = python_module("benchmarks.peers.spark_driver", str(directory), package, str(cache))
    with child(command, log=arena.session.log, environment={"PYTHONPATH": path}) as process:
        driver = SparkDriver(process, arena.session.log)
        yield driver
        driver.ask(STOPPED)


def _topic(arena: Arena, contestant: Contestant) -> AbstractContextManager[str]:
    durability = WAYS[contestant.name].durability
    return arena.topic(contestant, partitions=CASE.partitions, durability=durability)


def _contest(
    arena: Arena, case: str, rounds: Sequence[tuple[Contestant, Callable[[], Measured]]]
) -> Iterator[Row]:
    entries = [Entry(one, WAYS[one.name], run_one) for one, run_one in rounds]
    scale = arena.scale
    yield from arena.contest(NAME, case, entries, scale.spark_rounds, scale.warm_ups)


def _check_digest(driver: SparkDriver, one: Contestant, topic: str, records: int) -> None:
    each = records // CASE.partitions
    due = [records, CASE.partitions * expected_checksum(CASE.value_bytes, each)]
    found = driver.ask("digest", WAYS[one.name].method, one.servers, topic)
    if found != due:
        raise Mismatch(f"Spark reads {found} from {one.name}, count and checksum, and not {due}")


def _read(
    arena: Arena, driver: SparkDriver, one: Contestant, verb: str, topic: str, sink: str
) -> Measured:
    rows = arena.scale.spark_rows // CASE.partitions * CASE.partitions
    before_s = one.cpu_s()
    asked = (verb, WAYS[one.name].method, one.servers, topic, sink.lower(), rows)
    return _measured(Sample(**driver.ask(*asked)), one.cpu_s() - before_s)


def _write(arena: Arena, driver: SparkDriver, one: Contestant) -> Measured:
    """Writes to a new topic, whose records are counted afterwards."""
    rows = arena.scale.spark_rows
    with _topic(arena, one) as topic:
        before_s = one.cpu_s()
        asked = ("write", WAYS[one.name].method, one.servers, topic, CASE.value_bytes, rows)
        sample = Sample(**driver.ask(*asked))
        server_cpu_s = one.cpu_s() - before_s
        arena.verify(one, topic, CASE, rows, None)
    return _measured(sample, server_cpu_s)


def _measured(sample: Sample, server_cpu_s: float) -> Measured:
    gib = sample.units * CASE.value_bytes / GIB
    figures = {
        "rows/s": sample.per_wall_s,
        "MiB/s": sample.per_wall_s * CASE.value_bytes / MIB,
        "Spark CPU s/GiB": sample.cpu_s / gib,
        "server CPU s/GiB": server_cpu_s / gib,
    }
    return Measured(figures, int(sample.units))
