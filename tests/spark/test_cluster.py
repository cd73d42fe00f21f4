"""A standalone cluster of Spark reads, streams and imports, from a broker at another address.

The driver, each worker and the broker have loopback addresses of their own. All that happens is one
application, because each starts three JVMs; each test is a fact of it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from millrace.sync import Admin, Consumer, Producer
from tests.command_line import COMMAND
from tests.free_ports import free_ports
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.quick_spark import needs_java
from tests.spark.import_kills import GROUP, PARTITIONS, TOPIC, Outcome, counted
from tests.spark.standalone_cluster import (
    EXECUTOR_MEMORY,
    StandaloneCluster,
    standalone_cluster,
)

pytestmark = [pytest.mark.long, pytest.mark.spark, needs_java]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "spark_connector" / "README.md").read_text("utf-8")
BROKER_HOST = "127.0.0.2"
JOB_TIMEOUT_S = 5 * HANG_TIMEOUT_S
"""A driver and two executors start their JVMs, and run several jobs."""
VALUES = [[f"{partition}-{number}" for number in range(150)] for partition in range(2)]
"""The values of the partitions of the topic `in`."""
IMPORTED_RECORDS = 20_000
IMPORTED_BYTES = 200
PIECE_BYTES = "32k"
"""Cuts the import into more than a hundred tasks, so that it is far from its end when it is seen
to run."""
FINISHED_MIN = 3


@dataclass(frozen=True, slots=True)
class Run:
    """What the application printed and left."""

    read: list[tuple[int, int, str]]
    aggregate: list[list[str]]
    streamed: list[str]
    summary: str
    imported: Outcome
    ranges_before_the_kill: int
    is_on_both_workers: bool


@pytest.fixture(scope="session")
def run(quick_spark: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The application on a cluster of two workers, one of which is killed while it imports."""
    pytest.importorskip("pyspark", reason="needs pyspark: pip install '.[dev,spark]'")
    directory = tmp_path_factory.mktemp("cluster")
    with (
        standalone_cluster(directory, quick_spark) as cluster,
        broker_process(directory / "data") as (broker, servers),
    ):
        produce(servers)
        out = directory / "out"
        command = [
            *(sys.executable, "-m", "tests.spark.cluster_client", cluster.master, servers),
            str(directory / "checkpoint"),
            *import_command(cluster, servers, out),
        ]
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **quick_spark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as client:
            try:
                wait_until(lambda: len(finished(out)) >= FINISHED_MIN, client)
                # Tasks cannot read on while a worker dies, so the import is not over by then.
                broker.send_signal(signal.SIGSTOP)
                ranges_before = len(finished(out))
                cluster.workers[0].kill()
                broker.send_signal(signal.SIGCONT)
                stdout, stderr = client.communicate(timeout=JOB_TIMEOUT_S)
            finally:
                client.kill()
        assert client.returncode == 0, stderr
        printed, summary = stdout.splitlines()
        return Run(
            **json.loads(printed),
            streamed=streamed(servers),
            summary=summary,
            imported=counted(servers, out, kills=1),
            ranges_before_the_kill=ranges_before,
            is_on_both_workers=all(worker.has_run_tasks() for worker in cluster.workers),
        )


@contextmanager
def broker_process(data: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A broker at an address where neither the driver nor a worker is; and that address."""
    address = f"{BROKER_HOST}:{free_ports(host=BROKER_HOST)}"
    flags = ("--data", str(data), "--listen", address, "--advertise", address)
    with subprocess.Popen(
        [*COMMAND, "serve", *flags, "--log-level", "error"], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().decode() == f"listening on {address}\n"
            yield process, address
        finally:
            process.kill()


def produce(servers: str) -> None:
    """Creates the topics, and sends the records that are read and imported."""
    with Admin(servers) as admin, Producer(servers) as producer:
        for topic in ("in", "streamed"):
            admin.create_topic(topic, partitions=len(VALUES))
        for partition, values in enumerate(VALUES):
            producer.send_many("in", [value.encode() for value in values], partition=partition)
        admin.create_topic(TOPIC, partitions=PARTITIONS)
        numbers = [b"%0*d" % (IMPORTED_BYTES, number) for number in range(IMPORTED_RECORDS)]
        producer.send_many(TOPIC, numbers, keys=numbers)


def import_command(cluster: StandaloneCluster, servers: str, out: Path) -> list[str]:
    """The arguments of `millrace` in the documentation, for this cluster and this broker."""
    command = re.search(r"^millrace (spark import .* --master spark://.*)$", PAGE, re.M)
    assert command is not None
    text = command[1]
    for documented, here in (
        ("import clicks", f"import {TOPIC}"),
        ("/mnt/lake/clicks", str(out)),
        ("spark://spark-1:7077", cluster.master),
        ("broker-1:9092", servers),
        ("spark.executor.memory=2g", f"spark.executor.memory={EXECUTOR_MEMORY}"),
    ):
        assert documented in text
        text = text.replace(documented, here)
    settings = [f"{name}={value}" for name, value in cluster.settings.items()]
    return [
        *shlex.split(text),
        *("--group", GROUP, "--quiet", "--max-partition-bytes", PIECE_BYTES),
        *(argument for each in settings for argument in ("--conf", each)),
    ]


def finished(out: Path) -> list[Path]:
    """The markers of the finished ranges of an open batch."""
    return list(out.glob("_millrace/done/*/*"))


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Waits for an event that a running process causes."""
    deadline = time.monotonic() + JOB_TIMEOUT_S
    while not happened():
        if process.poll() is not None:
            raise RuntimeError(f"the application ended early: {process.communicate()}")
        if time.monotonic() > deadline:
            raise TimeoutError("the import finished no range")
        time.sleep(0.01)


def streamed(servers: str) -> list[str]:
    """The values of the topic that the stream wrote, up to its end."""
    found: list[str] = []
    with Consumer(servers, "streamed") as consumer, Admin(servers) as admin:
        ends = admin.list_offsets({("streamed", n): "latest" for n in range(len(VALUES))})
        while len(found) < sum(end.offset for end in ends.values()):
            found += [(record.value or b"").decode() for record in consumer.getmany()]
    return sorted(found)


def test_executors_on_both_workers_run_tasks(run: Run) -> None:
    assert run.is_on_both_workers


def test_executors_read_every_record_from_the_address_of_the_broker(run: Run) -> None:
    assert sorted(map(tuple, run.read)) == [
        (partition, offset, value)
        for partition, values in enumerate(VALUES)
        for offset, value in enumerate(values)
    ]


def test_an_aggregate_counts_every_record(run: Run) -> None:
    assert sorted(run.aggregate) == [
        [str(partition), str(len(values)), str(sum(map(len, values))), "0"]
        for partition, values in enumerate(VALUES)
    ]


def test_a_stream_writes_each_record_once(run: Run) -> None:
    assert run.streamed == sorted(value for values in VALUES for value in values)


def test_an_import_completes_on_the_other_worker_when_one_is_killed(run: Run) -> None:
    assert run.ranges_before_the_kill < run.imported.files, "it was over before the kill"
    assert run.summary.split("\t")[:2] == [GROUP, str(IMPORTED_RECORDS)]
    assert run.imported.is_exactly_once, run.imported
    assert run.imported.produced == IMPORTED_RECORDS
