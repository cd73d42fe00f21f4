"""A Spark driver in a process of its own, that does what it is told by lines on its stdin.

Owns the queries that are measured: a line is a `Job`, and the response a `Sample` as JSON. CPU
time is that of this process and all below it, which are the JVM and its Python workers.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.processes import measured, tree_cpu_s
from benchmarks.samples import Sample
from benchmarks.spark_job import PAIRED, PREBUILT, RECEIVED, STOPPED, WRITTEN_TOPIC, Job
from benchmarks.spark_rows import COLUMNS, NOISE_BYTES, STRIDE, TIMESTAMP_MS, ddl, noise
from benchmarks.spark_stream import micro_batches
from millrace_spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Driver:
    """A session, the broker it reads from and writes to, and a directory for Parquet."""

    def __init__(self, servers: str, directory: Path, *, is_paired: bool) -> None:
        self._servers = servers
        self._directory = directory
        self._parquet = directory / "parquet"
        self._spark = _session(directory)
        if not is_paired:
            _register_ceilings(self._spark)

    def stop(self) -> None:
        """Ends the session."""
        self._spark.stop()

    def run(self, job: Job) -> Sample:
        """Plans and runs one query; both are within the time taken."""
        shutil.rmtree(self._parquet, ignore_errors=True)
        return measured(
            os.getpid(),
            job.shape.rows,
            lambda: self._sink(job, self._frame(job)),
            cpu_s=tree_cpu_s,
        )

    def digest(self, job: Job) -> str:
        """A few aggregates that are equal if the rows are, in whatever order."""
        from pyspark.sql import functions as f

        columns = [
            f.count("value"),
            f.count("key"),
            f.bit_xor(f.xxhash64(*(name for name in job.columns if name != "key"))),
            f.sum(f.crc32("value")),
        ]
        (row,) = self._frame(job).select(columns).collect()
        return " ".join(map(str, row))

    def stream(self, topic: str, count: int) -> dict[str, list[float]]:
        """Seconds of micro-batches of one record; see `micro_batches`."""
        return micro_batches(self._spark, self._servers, topic, count, self._directory)

    def _frame(self, job: Job) -> DataFrame:
        if job.source == "range":
            return _range_rows(self._spark, job)
        reader = self._spark.read.format(job.source)
        if job.columns != COLUMNS:
            reader = reader.schema(ddl(job.columns))
        if job.source in (PREBUILT, RECEIVED):
            shape = {name: str(value) for name, value in asdict(job.shape).items()}
            return reader.options(**shape, servers=self._servers).load()
        reader = reader.option("millrace.servers", self._servers)
        return reader.option("subscribe", job.shape.topic).load()

    def _sink(self, job: Job, frame: DataFrame) -> None:
        writer = frame.write.format(job.sink).mode("append")
        if job.sink == "millrace":
            writer = writer.option("millrace.servers", self._servers).option("topic", WRITTEN_TOPIC)
        writer.save(*([str(self._parquet)] if job.sink == "parquet" else []))


def _register_ceilings(spark: SparkSession) -> None:
    """Adds the sources that the connector is measured against; they share modules with it."""
    from benchmarks.spark_ceiling import PrebuiltSource
    from benchmarks.spark_socket import ReceivedSource

    spark.dataSource.register(PrebuiltSource)
    spark.dataSource.register(ReceivedSource)


def _session(directory: Path) -> SparkSession:
    """What `millrace_spark.session` makes, without what a terminal and a browser are shown."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    return session(
        "benchmarks",
        conf={
            "spark.log.level": "ERROR",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        },
    )


def _range_rows(spark: SparkSession, job: Job) -> DataFrame:
    """The same rows, made in the JVM."""
    from pyspark.sql import functions as f

    shape = job.shape
    number = f.col("id") % shape.part_rows
    position = number % shape.pool_rows * STRIDE % (NOISE_BYTES - shape.value_bytes)
    made = {
        "key": f.lit(None).cast("binary"),
        "value": f.substring(f.lit(bytearray(noise())), position + 1, f.lit(shape.value_bytes)),
        "topic": f.lit(shape.topic),
        "partition": (f.col("id") / shape.part_rows).cast("int"),
        "offset": number,
        "timestamp": f.timestamp_millis(f.lit(TIMESTAMP_MS)),
        "timestampType": f.lit(0),
    }
    rows = spark.range(0, shape.rows, 1, shape.partitions)
    return rows.select(*(made[name].alias(name) for name in job.columns))


def main(arguments: list[str]) -> None:
    servers, directory, pairing = arguments
    # The JVM inherits stdout, and Spark's words are not responses.
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def response(found: object) -> None:
        print(json.dumps(found), file=responses, flush=True)

    driver = Driver(servers, Path(directory), is_paired=pairing == PAIRED)
    commands: dict[str, Callable[..., object]] = {
        "job": lambda job: asdict(driver.run(Job.of(job))),
        "digest": lambda job: driver.digest(Job.of(job)),
        "stream": driver.stream,
    }
    response("ready")
    for line in sys.stdin:
        name, *parameters = json.loads(line)
        if name == STOPPED:
            break
        response(commands[name](*parameters))
    driver.stop()
    response(STOPPED)


if __name__ == "__main__":
    main(sys.argv[1:])
