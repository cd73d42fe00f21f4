"""The Spark connector beside what Spark and its Python data sources cost without a broker.

Owns the contests. All contestants of a row run in the same session, in turns, and give or take the
same rows. The CPU time is Spark's, with its Python workers; a note has the broker's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from statistics import median

from benchmarks.batches import FILL_IN_FLIGHT, LATEST
from benchmarks.broker import RunningBroker, running_broker
from benchmarks.checkout import ROOT
from benchmarks.processes import child, process_cpu_s, python_module
from benchmarks.results import By, Fact, Row, compare
from benchmarks.samples import Sample, Spread, interleave
from benchmarks.session import Session
from benchmarks.spark_job import (
    ALONE,
    PAIRED,
    PREBUILT,
    RECEIVED,
    STOPPED,
    WRITTEN_TOPIC,
    Job,
)
from benchmarks.spark_process import SparkDriver
from benchmarks.spark_rows import TIMESTAMP_MS, Shape, values
from benchmarks.wire import BrokerConnection, UnexpectedResponse, produce_frame, pump
from millrace_protocol.api import ApiKey
from millrace_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from millrace_protocol.records.encode import encode_batch

PARTITIONS = 4
BATCH_BYTES = 128 << 10
"""Of the batches that are read, about: the default `batch_bytes` of a producer."""
READ_TARGET = 0.8
WRITE_TARGET = 0.7
TARGET_BY: By = "cpu"
BATCH_LIMIT_S = 0.15
STREAM_TOPIC = "stream"
OURS = "millrace"
TWO_COLUMNS = "millrace, value and offset"
CEILING = "prebuilt Arrow"
RECEIVING = "received and copied"
DROPPING = "a sink that drops"
RANGE = "range"


def measure(session: Session, group: str) -> Iterator[Row]:
    """A row for each way to read and to write, and facts about micro-batches."""
    with (
        running_broker(session, "spark-data") as broker,
        broker.connect() as connection,
        spark_driver(session, broker.servers) as driver,
    ):
        arena = Arena(session, group, broker, connection, driver)
        shapes = [
            Shape(rows, value_bytes, PARTITIONS)
            for value_bytes, rows in session.scale.spark_rows.items()
        ]
        for shape in shapes:
            yield from arena.reads(shape)
        yield from arena.writes(shapes)
        yield from arena.stream()


@contextmanager
def spark_driver(session: Session, servers: str) -> Iterator[SparkDriver]:
    """A Spark session in a process of its own, which is ended on leaving."""
    session.say("spark: starting a session")
    # For the workers, which look for the modules of this package by themselves.
    inherited = (session.checkout.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH"))
    path = [str(ROOT), *filter(None, inherited)]
    directory = session.directory / "spark"
    directory.mkdir()
    pairing = PAIRED if session.is_paired else ALONE
    command = python_module("benchmarks.spark_driver", servers, str(directory), pairing)
    environment = {"PYTHONPATH": os.pathsep.join(path)}
    with child(command, log=session.log, environment=environment) as process:
        driver = SparkDriver(process, session.log)
        yield driver
        driver.ask(STOPPED)


class Arena:
    """A broker and a driver, and the contests that are held with them."""

    def __init__(
        self,
        session: Session,
        group: str,
        broker: RunningBroker,
        connection: BrokerConnection,
        driver: SparkDriver,
    ) -> None:
        self._session = session
        self._group = group
        self._broker = broker
        self._connection = connection
        self._driver = driver

    def reads(self, shape: Shape) -> Iterator[Row]:
        """To `noop`, and to Parquet. Raises `UnexpectedResponse` unless all have the same rows."""
        self._fill(shape)
        jobs = {
            OURS: Job("millrace", "noop", shape),
            CEILING: Job(PREBUILT, "noop", shape),
            RECEIVING: Job(RECEIVED, "noop", shape),
            RANGE: Job("range", "noop", shape),
        }
        self._check_rows(self._session.entrants(jobs))
        two_columns = {TWO_COLUMNS: replace(jobs[OURS], columns=("value", "offset"))}
        files = {name: replace(job, sink="parquet") for name, job in jobs.items()}
        targets = [
            (OURS, CEILING, READ_TARGET),
            (RECEIVING, CEILING, None),
            (OURS, RECEIVING, None),
            (OURS, RANGE, None),
        ]
        title = f"Read {_what(shape)}"
        yield self._contest(title, jobs | two_columns, [*targets, (TWO_COLUMNS, OURS, None)])
        yield self._contest(f"{title}, and write them to Parquet", files, targets)

    def writes(self, shapes: Sequence[Shape]) -> Iterator[Row]:
        """Values without keys, to a topic and to nowhere."""
        self._connection.create_topic(
            WRITTEN_TOPIC, partitions=PARTITIONS, durability="os", retention_bytes=str(1 << 28)
        )
        for shape in shapes:
            yield self._contest(
                f"Write {_what(shape)}",
                {
                    OURS: Job("range", "millrace", shape, ("value",)),
                    DROPPING: Job("range", PREBUILT, shape, ("value",)),
                    RANGE: Job("range", "noop", shape, ("value",)),
                },
                [(OURS, DROPPING, WRITE_TARGET), (DROPPING, RANGE, None)],
            )

    def stream(self) -> list[Row]:
        """Micro-batches of one record."""
        self._session.say("spark: micro-batches")
        self._connection.create_topic(STREAM_TOPIC, durability="os")
        found = self._driver.ask("stream", STREAM_TOPIC, self._session.scale.micro_batches)
        return [
            Fact(
                self._group,
                "A micro-batch of one record to noop",
                "s",
                Spread.of(found["batch"]),
                BATCH_LIMIT_S,
                "triggerExecution in Spark's progress, one batch after the other",
            ),
            Fact(
                self._group,
                "From a send to its row in a function of foreachBatch",
                "s",
                Spread.of(found["record"]),
                None,
                "acks=all, durability=os; collected on the driver, one record at a time",
            ),
        ]

    def _fill(self, shape: Shape) -> None:
        """Makes the topic that is read."""
        self._session.say(f"spark: filling a topic with {_what(shape)}")
        self._connection.create_topic(shape.topic, partitions=shape.partitions, durability="os")
        for partition in range(shape.partitions):
            first, *others = _requests(shape, partition)
            response = self._connection.exchange(first)
            self._connection.decode(ApiKey.PRODUCE, response)
            pump(
                self._connection.sock,
                others,
                count=len(others),
                in_flight=FILL_IN_FLIGHT,
                response_size=len(response),
            )
        _check_count(shape.topic, self._records(shape.topic, shape.partitions), shape.rows)

    def _check_rows(self, jobs: Mapping[str, Job]) -> None:
        digests = {name: self._driver.ask("digest", asdict(job)) for name, job in jobs.items()}
        if len(set(digests.values())) != 1:
            raise UnexpectedResponse(f"the rows of the contestants differ: {digests}")

    def _contest(
        self,
        title: str,
        jobs: Mapping[str, Job],
        targets: Sequence[tuple[str, str, float | None]],
    ) -> Row:
        """A row; every contestant runs before its rounds count, for the JVM's compiler."""
        self._session.say(f"spark: {title}")
        broker_cpu_s: list[float] = []

        def run(job: Job) -> Sample:
            before_s = process_cpu_s(self._broker.pid)
            sample = self._run(job)
            if job.source in ("millrace", RECEIVED) or job.sink == "millrace":
                broker_cpu_s.append(process_cpu_s(self._broker.pid) - before_s)
            return sample

        runs = self._session.entrants({name: partial(run, job) for name, job in jobs.items()})
        interleave(runs, self._session.scale.spark_warm_ups)
        broker_cpu_s.clear()
        samples = interleave(runs, self._session.scale.spark_rounds)
        (shape,) = {job.shape for job in jobs.values()}
        megabytes = shape.rows * shape.value_bytes / 1e6
        rates = ", ".join(
            f"{name} {median(megabytes / sample.cpu_s for sample in of):.0f}"
            for name, of in samples.items()
        )
        return compare(
            self._group,
            title,
            "rows",
            samples,
            targets,
            target_by=TARGET_BY,
            note=(
                f"MB of values per CPU second of Spark: {rates}. A round is {megabytes:.0f} MB in "
                f"{shape.partitions} tasks; it takes the broker {median(broker_cpu_s):.2f} CPU "
                "seconds more."
            ),
        )

    def _run(self, job: Job) -> Sample:
        """One round. Raises `UnexpectedResponse` unless what is written is in the topic."""
        if job.sink != "millrace":
            return Sample(**self._driver.ask("job", asdict(job)))
        before = self._records(WRITTEN_TOPIC, PARTITIONS)
        sample = Sample(**self._driver.ask("job", asdict(job)))
        written = self._records(WRITTEN_TOPIC, PARTITIONS) - before
        _check_count(WRITTEN_TOPIC, written, job.shape.rows)
        return sample

    def _records(self, topic: str, partitions: int) -> int:
        """How many records a topic was given so far."""
        questions = tuple(
            ListOffsetsPartition(topic=topic, partition=partition, timestamp_ms=LATEST)
            for partition in range(partitions)
        )
        responses = self._connection.call(
            ApiKey.LIST_OFFSETS, ListOffsetsRequest(partitions=questions)
        )
        return sum(response.offset for response in responses.partitions)


def _requests(shape: Shape, partition: int) -> list[bytes]:
    """The records of one partition, in batches of about `BATCH_BYTES`."""
    of = values(shape)
    rows = BATCH_BYTES // shape.value_bytes
    requests = []
    for first in range(0, shape.part_rows, rows):
        numbers = range(first, min(first + rows, shape.part_rows))
        batch = encode_batch(
            [of[number % len(of)] for number in numbers], timestamps_ms=TIMESTAMP_MS
        )
        requests.append(produce_frame(shape.topic, bytes(batch), partition=partition))
    return requests


def _check_count(topic: str, found: int, due: int) -> None:
    if found != due:
        raise UnexpectedResponse(f"{topic} has {found} records more where {due} are due")


def _what(shape: Shape) -> str:
    return f"rows of {shape.value_bytes} bytes"
