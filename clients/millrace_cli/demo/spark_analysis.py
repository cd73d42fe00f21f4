"""The demo's Spark part: import a topic to Parquet, add up delays, compare, plot.

Runs in a process of its own. Owns the query and the comparison with the CSV file. `flights` defines
delays; `plot` draws.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millrace_cli.demo.flights import (
    NEW_YORK,
    Delay,
    Delays,
    delays_of_csv,
    departures_of_csv,
    flights_file,
    per_carrier,
    per_hour,
)
from millrace_cli.exits import Exit, run_blocking
from millrace_cli.table import show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,
    sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string,
    dest string, air_time int, distance int, hour int, minute int, time_hour timestamp
"""
"""The fields of a flight, as `flights.flight_records` writes them."""
FAULTS_MAX = 10


def analyse(servers: str, topic: str, limit: int | None, directory: Path, plot: Path) -> Exit:
    """Imports into `directory`, compares, and draws `plot`; OK too without Java.

    Raises the errors of the import and of Spark, and `OSError` of the plot.
    """
    from millrace_spark import JavaNotFound
    from millrace_spark.pipeline.spark_tasks import error_of_task

    try:
        spark = _start()
    except JavaNotFound as error:
        _print(f"spark: omitted; {error}")
        return Exit.OK
    try:
        landed, counted = _import(spark, servers, topic, directory)
        found = delays_of_parquet(spark, directory)
    except Exception as error:
        raise error_of_task(error) from error
    finally:
        spark.stop()
    file = flights_file()
    flights = departures_of_csv(file, limit=limit).flights
    expected = delays_of_csv(file, limit=limit)
    outcome = compare(found, expected)
    if not landed == counted == flights:
        _print(
            f"spark: {landed:,} flights in Parquet, {counted:,} in the topic, {flights:,} expected"
        )
        outcome = Exit.REFUSED
    from millrace_cli.demo.plot import draw

    draw(found, plot)
    print(f"plot\t{plot}", flush=True)
    return outcome


def _start() -> SparkSession:
    from millrace_spark.pipeline.spark_start import start_spark

    conf = (
        "spark.sql.shuffle.partitions=2",
        # The JVM runs for seconds, so the optimizing compiler does not pay.
        "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )
    return start_spark("millrace demo", master=None, conf=conf)


def _import(spark: SparkSession, servers: str, topic: str, directory: Path) -> tuple[int, int]:
    """The number of records in the files, and in the topic."""
    from millrace_spark.pipeline import ImportSettings, import_topics
    from millrace_spark.pipeline.value_schema import parse_schema

    settings = ImportSettings((topic,), str(directory), servers, schema=parse_schema(SCHEMA))
    done = import_topics(lambda: spark, settings)
    _print(
        f"spark: {done.records:,} records imported in {done.elapsed_s:.2f} s: "
        f"{done.files} Parquet files, {done.size_bytes / 1e6:.1f} MB"
    )
    counted = (
        spark.read.format("millrace")
        .option("millrace.servers", servers)
        .option("subscribe", topic)
        .schema("offset long")
        .load()
        .count()
    )
    return spark.read.parquet(str(directory)).count(), counted


def delays_of_parquet(spark: SparkSession, directory: Path) -> Delays:
    """The delays in the files, by the records' keys and timestamps."""
    from pyspark.sql import functions as f

    hour = f.hour(f.from_utc_timestamp("timestamp", NEW_YORK))
    rows = (
        spark.read.parquet(str(directory))
        .where("dep_time IS NOT NULL")
        .groupBy(hour.alias("hour"), f.col("key").cast("string").alias("carrier"))
        .agg(f.count("*").alias("departures"), f.sum("dep_delay").alias("minutes"))
        .collect()
    )
    return {(row.hour, row.carrier): Delay(row.departures, row.minutes) for row in rows}


def compare(found: Delays, expected: Delays) -> Exit:
    """Prints and compares means per hour and per carrier with the expected ones.

    Compares sums of whole minutes, which need no rounding.
    """
    _show("hour", per_hour(found), per_hour(expected))
    _show("carrier", per_carrier(found), per_carrier(expected))
    sys.stdout.flush()
    faults = [
        f"{hour} h, {carrier}: {found.get((hour, carrier), Delay())} from Spark, "
        f"{expected.get((hour, carrier), Delay())} from the CSV"
        for hour, carrier in sorted({*found, *expected})
        if found.get((hour, carrier)) != expected.get((hour, carrier))
    ]
    if faults:
        _print(f"spark: {len(faults)} sums of an hour and a carrier differ from the CSV")
        for fault in faults[:FAULTS_MAX]:
            _print(f"  {fault}")
        return Exit.REFUSED
    total = sum(found.values(), Delay())
    _print(
        f"spark: equal: departures and delays of {len(found)} pairs of hour and carrier, "
        f"{total.departures:,} departures in all, {total.mean:.2f} minutes late on average"
    )
    return Exit.OK


def _show(part: str, found: Mapping[Any, Delay], expected: Mapping[Any, Delay]) -> None:
    rows = []
    for key in sorted({*found, *expected}):
        ours, theirs = found.get(key, Delay()), expected.get(key, Delay())
        means = (f"{ours.mean:.2f}", f"{theirs.mean:.2f}")
        rows.append((key, ours.departures, theirs.departures, *means))
    columns = (
        *(part, "departures, from Spark #", "from the CSV #"),
        *("mean delay in min, from Spark #", "from the CSV #"),
    )
    show(columns, rows, title=f"departures and delays per {part}", kind=f"{part}-delay")


def _print(line: str) -> None:
    """Prints a message to stderr, as the rest of the demo does."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Runs with `SERVERS TOPIC LIMIT DIRECTORY PLOT`; an empty limit means all."""
    servers, topic, limit, directory, plot = sys.argv[1:]
    work = partial(
        analyse, servers, topic, int(limit) if limit else None, Path(directory), Path(plot)
    )
    try:
        run_blocking(work)
    except typer.Exit as end:
        raise SystemExit(end.exit_code) from None


if __name__ == "__main__":
    main()
