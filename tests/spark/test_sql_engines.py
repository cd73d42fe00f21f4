"""One query has one result: on DuckDB, on Spark, and from the CSV file itself."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from millrace.sync import Admin, Producer
from millrace_cli.demo.flights import flight_records, flights_file
from millrace_cli.sql.run import SqlSettings, run_once
from millrace_server.testing import BrokerThread
from millrace_spark.pipeline.errors import QueryRefused
from millrace_spark.pipeline.progress import NoProgress

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
HOURLY = """
    SELECT hour, count(*) AS departures, sum(dep_delay) AS minutes
    FROM flights WHERE dep_delay IS NOT NULL GROUP BY 1 ORDER BY 1
"""


@pytest.fixture(scope="module")
def flights(broker: BrokerThread) -> Iterator[Path]:
    """The CSV file whose 336,776 rows are the topic `flights`."""
    file = flights_file()
    with Admin(broker.servers) as admin:
        admin.create_topic("flights", partitions=4)
        admin.create_topic("few", partitions=2)
        admin.create_topic("nothing")
    with Producer(broker.servers) as producer:
        for part in flight_records(file, limit=5_000, chunk_rows=5_000):
            producer.post_many("few", part.values, keys=part.keys, timestamps_ms=part.timestamps_ms)
        for part in flight_records(file, limit=None, chunk_rows=20_000):
            producer.post_many(
                "flights", part.values, keys=part.keys, timestamps_ms=part.timestamps_ms
            )
    yield file


def queried(broker: BrokerThread, text: str, **settings: Any) -> list[list[str]]:
    """The rows of a result, as the command prints them in a pipe."""
    out = io.StringIO()
    with redirect_stdout(out):
        run_once(SqlSettings(text, broker.servers, {}, **settings), NoProgress())
    return [line.split("\t") for line in out.getvalue().splitlines()]


def hours_of_csv(file: Path) -> list[tuple[int, int, int]]:
    sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    with ZipFile(file) as archive, archive.open(archive.namelist()[0]) as rows:
        for row in csv.DictReader(io.TextIOWrapper(rows)):
            if row["dep_delay"] not in ("NA", ""):
                sums[int(row["hour"])][0] += 1
                sums[int(row["hour"])][1] += int(float(row["dep_delay"]))
    return [(hour, *sums[hour]) for hour in sorted(sums)]  # type: ignore[misc]


def test_the_hourly_table_of_the_flights_is_that_of_the_csv_on_both_engines(
    spark: Any, broker: BrokerThread, flights: Path
) -> None:
    wanted = [[str(cell) for cell in row] for row in hours_of_csv(flights)]
    assert len(wanted) == 19
    assert queried(broker, HOURLY) == wanted
    assert queried(broker, HOURLY, spark=lambda: spark) == wanted


@pytest.mark.parametrize(
    "text",
    [
        'SELECT partition, min("offset"), max("offset"), count(*) FROM few GROUP BY 1 ORDER BY 1',
        "SELECT key, timestamp, carrier, time_hour, dep_time, topic FROM few "
        'WHERE "offset" BETWEEN 17 AND 19 ORDER BY partition, "offset"',
        "WITH late AS (SELECT * FROM few WHERE dep_delay > 60) "
        "SELECT a.carrier, count(*) FROM late a GROUP BY a.carrier ORDER BY 2 DESC, 1",
        "SELECT count(*) FROM few WHERE timestamp >= TIMESTAMP '2013-01-02 00:00:00'",
        "SELECT count(*), max(key) FROM nothing",
    ],
)
def test_a_query_of_standard_sql_has_the_same_rows_on_both_engines(
    spark: Any, broker: BrokerThread, flights: Path, text: str
) -> None:
    found = queried(broker, text)
    assert found
    assert queried(broker, text, spark=lambda: spark) == found


def test_spark_gets_the_bounds_of_the_read_too(
    spark: Any, broker: BrokerThread, flights: Path
) -> None:
    bounds = {"start_ms": 1_357_200_000_000}
    text = "SELECT count(*) FROM few"
    found = queried(broker, text, **bounds)
    assert 0 < int(found[0][0]) < 5_000
    assert queried(broker, text, spark=lambda: spark, **bounds) == found


def test_spark_says_what_is_wrong_and_keeps_its_settings(
    spark: Any, broker: BrokerThread, flights: Path
) -> None:
    names: Sequence[str] = ("spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.session.timeZone")
    before = [spark.conf.get(name) for name in names]
    with pytest.raises(QueryRefused, match="nosuch"):
        queried(broker, "SELECT nosuch FROM few", spark=lambda: spark)
    assert [spark.conf.get(name) for name in names] == before
    assert not spark.catalog.tableExists("few")


def test_a_field_with_the_name_of_a_records_column_is_itself_on_both_engines(
    spark: Any, broker: BrokerThread
) -> None:
    with Admin(broker.servers) as admin:
        admin.create_topic("named")
    with Producer(broker.servers) as producer:
        producer.send_many("named", [b'{"Timestamp": "noon"}', b'{"Timestamp": "x"}'])
    text = 'SELECT timestamp, record_timestamp > now(), "offset" FROM named ORDER BY 1'
    wanted = [["noon", "false", "0"], ["x", "false", "1"]]
    assert queried(broker, text) == wanted
    assert queried(broker, text, spark=lambda: spark) == wanted
