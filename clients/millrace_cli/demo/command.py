"""`millrace demo`: a year of flights through a broker and back, counted on both sides, and shared.

Owns the run, with a broker or a cluster of its own, and the comparison. `flights` knows the data;
`leader_kills` runs the cluster; `group_run` starts the processes that share the data;
`spark_process` starts Spark.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zlib import crc32

import typer

from millrace_cli.exits import Exit, ended, run
from millrace_cli.local_cluster.layout import BROKERS_MAX
from millrace_cli.table import show

if TYPE_CHECKING:
    from millrace_cli.demo.flights import Departures
    from millrace_cli.local_cluster.cluster import LocalCluster

TOPIC = "flights"
CHUNK_ROWS = 20_000
# Retention uses the timestamps of records, and those of 2013 are older than seven days.
_KEEP_ALL = {"retention.ms": -1}


def demo(
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=1000, help="Partitions of the topic.")
    ] = 4,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first N flights.", metavar="N")
    ] = None,
    plot: Annotated[Path, typer.Option(metavar="FILE", help="File of the plot, a PNG.")] = Path(
        "flights.png"
    ),
    brokers: Annotated[
        int,
        typer.Option(min=1, max=BROKERS_MAX, help="Brokers; from 3 on, leaders are killed."),
    ] = 1,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Omit the part that needs Java, and its plot.")
    ] = False,
) -> None:
    """Send 336,776 flights through a broker of its own, and compare the results.

    Starts a broker in a temporary directory and sends every flight scheduled to leave New York City
    in 2013 as a JSON record (key: the carrier; timestamp: the scheduled departure). Reads them back
    and prints departures per carrier and per hour of day, in New York, beside the same counts from
    the CSV file. Flights without a departure time were cancelled. The flights of a carrier must be
    read as sent, in the same order. A query over the topic, as millrace sql runs it, prints the
    departures and delays per hour.

    With --brokers 3 or more, the brokers are processes of a cluster, and each flight has three
    replicas, of which two must have it before it counts as sent (acks=all, min.insync.replicas=2).
    While the flights are sent, the broker that leads most partitions is killed (SIGKILL) three
    times, and started again when others lead in its place.

    Then three processes share the flights as a group; each commits the flights it has processed.
    One is killed (SIGKILL) after processing and before its commit, and a fourth joins. Prints the
    number of flights that each has processed.

    Then Spark imports the topic as Parquet, adds up departures and delays per hour and carrier, and
    compares them with the CSV file. The last line names the file of the plot.

    The exit code is 0 only if all counts are equal, and the group has processed every flight at
    least once, the flights of a carrier in order, and twice only flights that the killed member had
    not committed.

    Needs pip install 'millrace[demo]'. Spark needs Java 17 or newer; without Java, the demo omits
    Spark's part, prints a line to stderr, and exits with the code of the other parts.
    """
    if brokers == 2:
        reason = "--brokers 2: two brokers survive no loss; choose 1, or 3 and more"
        raise typer.Exit(ended(Exit.USAGE, reason))
    if not no_spark and not plot.absolute().parent.is_dir():
        raise typer.Exit(ended(Exit.USAGE, f"--plot {plot}: the directory does not exist"))
    run(_demo(partitions, limit, None if no_spark else plot, brokers))


async def _demo(partitions: int, limit: int | None, plot: Path | None, brokers: int) -> Exit:
    from millrace_cli.demo.flights import flights_file
    from millrace_cli.demo.leader_kills import demo_cluster
    from millrace_server.testing import Broker

    file = flights_file()
    if brokers == 1:
        async with Broker() as broker:
            sent = await _send_to_broker(broker.servers, file, partitions, limit)
            return await _compare_all(broker.servers, file, sent, limit, plot)
    async with demo_cluster(brokers) as cluster:
        sent = await _send_to_cluster(cluster, file, partitions, limit)
        return await _compare_all(cluster.servers, file, sent, limit, plot)


async def _compare_all(
    servers: str, file: Path, sent: _Totals, limit: int | None, plot: Path | None
) -> Exit:
    """Reads the flights in every way, and compares with what was sent and with the CSV file."""
    from millrace_cli.demo.flights import departures_of_csv
    from millrace_cli.demo.group_run import share
    from millrace_cli.demo.spark_process import analyse
    from millrace_cli.demo.sql_table import hourly_table

    received, read = await _receive(servers)
    _print(f"in:  {sent}, durable, made from {file.name}")
    _print(f"out: {received}, parsed and counted")
    expected = departures_of_csv(file, limit=limit)
    compared = _compare(read, expected)
    ordered = _compare_order(sent, received)
    queried = await hourly_table(servers, TOPIC, expected.per_hour)
    shared = await share(servers, TOPIC)
    analysed = Exit.OK
    if plot is not None:
        analysed = await analyse(servers, TOPIC, limit=limit, plot=plot)
    return max(compared, ordered, queried, shared, analysed)


@dataclass
class _Totals:
    """Records and bytes of one direction. A megabyte is 10**6 bytes of keys and values."""

    records: int = 0
    size: int = 0
    elapsed_s: float = 0.0
    chains: dict[bytes | None, int] = field(default_factory=dict)
    """A checksum of each key, over all its values in order."""

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Adds a record."""
        value = value or b""
        self.records += 1
        self.size += len(key or b"") + len(value)
        self.chains[key] = crc32(value, self.chains.get(key, 0))

    def __str__(self) -> str:
        megabytes = self.size / 1e6
        return (
            f"{self.records:,} records, {megabytes:.1f} MB in {self.elapsed_s:.2f} s: "
            f"{self.records / self.elapsed_s:,.0f} records/s, "
            f"{megabytes / self.elapsed_s:.1f} MB/s"
        )


async def _send_to_broker(servers: str, file: Path, partitions: int, limit: int | None) -> _Totals:
    from millrace.admin import Admin

    async with Admin(servers) as admin:
        await admin.create_topic(TOPIC, partitions=partitions, configs=_KEEP_ALL)
    return await _send(servers, file, limit)


async def _send_to_cluster(
    cluster: LocalCluster, file: Path, partitions: int, limit: int | None
) -> _Totals:
    """Sends while leaders are killed."""
    from millrace.admin import Admin
    from millrace_cli.demo.flights import count_flights
    from millrace_cli.demo.leader_kills import (
        KILLS,
        MIN_ISR,
        REPLICATION_FACTOR,
        KillSchedule,
        LeaderKills,
    )

    count = count_flights(file, limit=limit)
    async with Admin(cluster.servers) as admin:
        await admin.create_topic(
            TOPIC,
            partitions=partitions,
            replication_factor=REPLICATION_FACTOR,
            configs={**_KEEP_ALL, "min.insync.replicas": MIN_ISR},
        )
        async with KillSchedule(LeaderKills(cluster, admin, TOPIC), count) as schedule:
            return await _send(
                cluster.servers,
                file,
                limit,
                # A kill is in the middle of some chunks.
                chunk_rows=max(1, min(CHUNK_ROWS, count // (2 * KILLS + 2))),
                before_chunk=schedule.before_chunk,
            )


async def _send(
    servers: str,
    file: Path,
    limit: int | None,
    *,
    chunk_rows: int = CHUNK_ROWS,
    before_chunk: Callable[[int], Awaitable[None]] | None = None,
) -> _Totals:
    """Sends the flights; awaits `before_chunk(records sent)` before each chunk."""
    from millrace.producer import Producer
    from millrace_cli.demo.flights import flight_records

    totals = _Totals()
    started = time.perf_counter()
    async with Producer(servers, acks="all") as producer:
        for records in flight_records(file, limit=limit, chunk_rows=chunk_rows):
            if before_chunk is not None:
                await before_chunk(totals.records)
            await producer.send_many(
                TOPIC, records.values, keys=records.keys, timestamps_ms=records.timestamps_ms
            )
            for key, value in zip(records.keys, records.values, strict=True):
                totals.add(key, value)
    totals.elapsed_s = time.perf_counter() - started
    return totals


async def _receive(servers: str) -> tuple[_Totals, Departures]:
    """Reads the topic to its current end, and counts."""
    from millrace.consumer import Consumer
    from millrace_cli.demo.flights import DepartureCount

    totals = _Totals()
    count = DepartureCount()
    started = time.perf_counter()
    async with Consumer(servers, TOPIC) as consumer:
        ends = await consumer.end_offsets()
        ahead = {where for where, end in ends.items() if end > 0}
        async for batch in consumer.batches():
            for _, _, _, timestamp_ms, key, value, _ in batch:
                count.add(timestamp_ms, key, value)
                totals.add(key, value)
            if batch.next_offset >= ends[batch.where]:
                ahead.discard(batch.where)
                if not ahead:
                    break
    totals.elapsed_s = time.perf_counter() - started
    return totals, count.departures


def _compare(read: Departures, expected: Departures) -> Exit:
    for kind, from_topic, from_csv in (
        ("carrier", read.per_carrier, expected.per_carrier),
        ("hour", read.per_hour, expected.per_hour),
    ):
        rows = [(key, from_topic[key], from_csv[key]) for key in sorted({*from_topic, *from_csv})]
        columns = (kind, "from the topic #", "from the CSV #")
        show(columns, rows, title=f"departures per {kind}", kind=kind)
    sys.stdout.flush()
    if read == expected:
        _print(f"equal: {read.total:,} departures of {read.flights:,} flights")
        return Exit.OK
    _print(
        f"not equal: {read.total:,} departures of {read.flights:,} flights from the topic, "
        f"{expected.total:,} of {expected.flights:,} from the CSV"
    )
    for kind, from_topic, from_csv in (
        ("carrier", read.per_carrier, expected.per_carrier),
        ("hour", read.per_hour, expected.per_hour),
    ):
        for key in sorted({*from_topic, *from_csv}):
            if from_topic[key] != from_csv[key]:
                _print(
                    f"  {kind} {key}: {from_topic[key]} from the topic, {from_csv[key]} expected"
                )
    return Exit.REFUSED


def _compare_order(sent: _Totals, received: _Totals) -> Exit:
    """Compares the order of each carrier's flights with the order of sending."""
    keys = {*sent.chains, *received.chains}
    differ = [key for key in keys if sent.chains.get(key) != received.chains.get(key)]
    if not differ:
        _print(f"order: as sent, within each of {len(keys)} carriers")
        return Exit.OK
    names = ", ".join(sorted((key or b"").decode() for key in differ))
    _print(f"order: another order, or other bytes, within {names}")
    return Exit.REFUSED


def _print(line: str) -> None:
    """Prints a message to stderr, so that stdout has the counts only."""
    print(line, file=sys.stderr)
