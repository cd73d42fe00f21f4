"""A Spark session in a process of its own, that reads and writes what lines on its stdin say.

A line is a command and its parameters as JSON, the response is JSON too. CPU time is that of this
process and all below it: the JVM and its Python workers.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.processes import measured, tree_cpu_s
from millrace_spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOPPED = "stopped"
_SERVERS = {"millrace": "millrace.servers", "kafka": "kafka.bootstrap.servers"}


class Driver:
    """Commands of a session. A `source` is a format of Spark, with the address of its server."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._numbers = itertools.count()

    def read(self, source: str, servers: str, topic: str, sink: str, rows: int) -> dict[str, Any]:
        """Reads a whole topic, value and all other columns, to `noop` or `parquet`."""
        parquet = self._directory / "parquet"
        shutil.rmtree(parquet, ignore_errors=True)

        def work() -> None:
            frame = self._spark.read.format(source).options(**_options(source, servers, topic))
            writer = frame.load().write.format(sink).mode("append")
            writer.save(*([str(parquet)] if sink == "parquet" else []))

        return _sample(rows, work)

    def stream(self, source: str, servers: str, topic: str, sink: str, rows: int) -> dict[str, Any]:
        """The same as a stream that ends with what is there."""
        checkpoint = self._directory / f"checkpoint-{next(self._numbers)}"

        def work() -> None:
            frame = self._spark.readStream.format(source)
            rows_read = frame.options(**_options(source, servers, topic)).load()
            writer = rows_read.writeStream.format(sink).trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            query.awaitTermination()

        return _sample(rows, work)

    def write(self, source: str, servers: str, topic: str, size: int, rows: int) -> dict[str, Any]:
        """Writes rows that the JVM makes, with values of `size` bytes and no keys."""
        from pyspark.sql import functions as f

        value = f.rpad(f.sha2(f.col("id").cast("string"), 512), size, "millrace").cast("binary")

        def work() -> None:
            frame = self._spark.range(0, rows, 1, 4).select(value.alias("value"))
            writer = frame.write.format(source).mode("append")
            writer.option(_SERVERS[source], servers).option("topic", topic).save()

        return _sample(rows, work)

    def digest(self, source: str, servers: str, topic: str) -> list[int]:
        """How many rows there are, and the sum of the CRC-32s of their values."""
        from pyspark.sql import functions as f

        frame = self._spark.read.format(source).options(**_options(source, servers, topic)).load()
        (row,) = frame.select(f.count("value"), f.sum(f.crc32("value"))).collect()
        return list(row)


def _options(source: str, servers: str, topic: str) -> dict[str, str]:
    return {_SERVERS[source]: servers, "subscribe": topic, "startingOffsets": "earliest"}


def _sample(rows: int, work: Callable[[], None]) -> dict[str, Any]:
    return asdict(measured(os.getpid(), rows, work, cpu_s=tree_cpu_s))


def main(arguments: list[str]) -> None:
    directory, package, cache = arguments
    # The JVM inherits stdout, and Spark's words are not responses.
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def response(found: object) -> None:
        print(json.dumps(found), file=responses, flush=True)

    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    conf = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": f"{directory}/local",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }
    if package:
        conf |= {"spark.jars.packages": package, "spark.jars.ivy": cache}
    spark = session("benchmarks", conf=conf)
    driver = Driver(spark, Path(directory))
    commands: dict[str, Callable[..., object]] = {
        each.__name__: each for each in (driver.read, driver.stream, driver.write, driver.digest)
    }
    response("ready")
    for line in sys.stdin:
        name, *parameters = json.loads(line)
        if name == STOPPED:
            break
        response(commands[name](*parameters))
    spark.stop()
    response(STOPPED)


if __name__ == "__main__":
    main(sys.argv[1:])
