"""Through Spark itself: what was produced is what a query sees."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from millrace import Producer
from millrace.config import Compression
from millrace.records import Headers
from millrace.sync import Admin
from millrace_server.testing import BrokerThread
from millrace_spark import JavaNotFound, session
from millrace_spark.arrow_columns import arrow_schema
from millrace_spark.schema import COLUMNS, DDL

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

PARTITIONS = 3
CODECS: tuple[Compression, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH = 200
FIRST_MS = 1_700_000_000_000
Row = tuple[int, int, int, bytes | None, bytes | None, Headers]
"""`(partition, offset, timestamp_ms, key, value, headers)`"""


def row_at(partition: int, offset: int) -> Row:
    """The record produced there: with every kind of null, and a timestamp that is its own."""
    key = None if offset % 3 == 0 else b"key-%d" % (offset % 7)
    value = None if offset % 5 == 4 else b"%d" % (partition * 100_000 + offset)
    headers: Headers = ()
    if offset % 2:
        headers = (("kind", b"odd"), ("empty", b""), ("none", None), ("kind", b"again"))
    return partition, offset, FIRST_MS + offset, key, value, headers


ROWS = [
    row_at(partition, offset)
    for partition in range(PARTITIONS)
    for offset in range(BATCH * len(CODECS))
]


async def produce(servers: str) -> None:
    """One batch of each codec to each partition."""
    for number, codec in enumerate(CODECS):
        async with Producer(servers, compression=codec) as producer:
            for partition in range(PARTITIONS):
                first = number * BATCH
                rows = [row_at(partition, offset) for offset in range(first, first + BATCH)]
                _, _, timestamps_ms, keys, values, headers = zip(*rows, strict=True)
                await producer.send_many(
                    "clicks",
                    values,
                    keys=keys,
                    headers=headers,
                    timestamps_ms=timestamps_ms,
                    partition=partition,
                )


@pytest.fixture(scope="module")
def servers(spark: Any, broker: BrokerThread) -> Iterator[str]:
    """A broker with the topic `clicks`; after `spark`, so that nothing is made to be skipped."""
    with Admin(broker.servers) as admin:
        admin.create_topic("clicks", partitions=PARTITIONS)
        admin.create_topic("empty", partitions=PARTITIONS)
    asyncio.run(produce(broker.servers))
    yield broker.servers


def load(spark: Any, servers: str, *, schema: str | None = None, **options: str) -> Any:
    """A data frame of `clicks`, or of the topic in `options`."""
    reader = spark.read.format("millrace").options(servers=servers, topic="clicks")
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**options).load()


def offsets_of(frame: Any) -> dict[int, list[int]]:
    """The sorted offsets by partition."""
    found: dict[int, list[int]] = {}
    for partition, offset in frame.select("partition", "offset").collect():
        found.setdefault(partition, []).append(offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def test_every_record_comes_back_as_it_was_produced(spark: Any, servers: str) -> None:
    frame = load(spark, servers)
    assert frame.columns == list(COLUMNS)
    found = frame.selectExpr(
        "partition", "offset", "unix_millis(timestamp)", "key", "value", "headers", "topic"
    ).collect()
    assert {row.topic for row in found} == {"clicks"}
    rows = [
        (
            *row[:3],
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers),
        )
        for row in found
    ]
    assert sorted(rows, key=lambda row: row[:2]) == ROWS


def test_count_and_sum_are_those_of_what_was_produced(spark: Any, servers: str) -> None:
    frame = load(spark, servers)
    assert frame.rdd.getNumPartitions() == PARTITIONS
    (total,) = frame.selectExpr("sum(cast(string(value) as bigint))").first()
    assert total == sum(int(row[4]) for row in ROWS if row[4] is not None)
    assert frame.count() == len(ROWS)


def test_a_narrowed_schema_reads_these_columns_in_this_order(spark: Any, servers: str) -> None:
    frame = load(spark, servers, schema="value binary, offset long")
    assert frame.columns == ["value", "offset"]
    found = {(None if v is None else bytes(v), offset) for v, offset in frame.collect()}
    assert found == {(row[4], row[1]) for row in ROWS}


def test_offsets_bound_a_read_by_partition(spark: Any, servers: str) -> None:
    frame = load(
        spark,
        servers,
        start='{"clicks": {"0": 150, "1": 990}}',
        end='{"clicks": {"0": 450, "2": 1}}',
        max_offsets_per_partition="64",
    )
    assert frame.rdd.getNumPartitions() == 5 + 1 + 1
    assert offsets_of(frame) == {0: [*range(150, 450)], 1: [*range(990, 1000)], 2: [0]}


def test_times_bound_a_read_of_all_partitions(spark: Any, servers: str) -> None:
    frame = load(spark, servers, start="2023-11-14T22:13:20.100Z", end=str(FIRST_MS + 700))
    assert offsets_of(frame) == {key: [*range(100, 700)] for key in range(PARTITIONS)}


def test_an_empty_topic_is_an_empty_frame(spark: Any, servers: str) -> None:
    frame = load(spark, servers, topic="empty")
    assert frame.columns == list(COLUMNS)
    assert frame.count() == 0


def test_several_topics_are_one_frame(spark: Any, servers: str) -> None:
    frame = load(spark, servers, topic="empty,clicks", schema="topic string, partition int")
    found = {
        (row.topic, row.partition): row["count"]
        for row in frame.groupBy(*frame.columns).count().collect()
    }
    assert found == {("clicks", partition): 1000 for partition in range(PARTITIONS)}


def test_sql_reads_a_topic_as_a_view(spark: Any, servers: str) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW clicks_view USING millrace "
        f"OPTIONS (servers '{servers}', topic 'clicks', start '{FIRST_MS + 990}')"
    )
    (count,) = spark.sql("SELECT count(*) FROM clicks_view").first()
    assert count == PARTITIONS * 10


def test_load_needs_no_broker_and_an_action_fails_at_the_deadline(spark: Any) -> None:
    frame = load(spark, "127.0.0.1:1", deadline_ms="200")
    assert frame.columns == list(COLUMNS)
    with pytest.raises(Exception, match="ConnectionFailed: no broker at 127"):
        frame.count()


def test_a_wrong_option_fails_at_load(spark: Any) -> None:
    with pytest.raises(Exception, match="OptionError: start: 'soon' is not earliest"):
        load(spark, "localhost", start="soon")


def test_a_column_of_another_type_is_refused_before_anything_is_read(
    spark: Any, servers: str
) -> None:
    with pytest.raises(Exception, match="SchemaError: schema: value is binary and not string"):
        load(spark, servers, schema="value string").count()


def test_offsets_that_are_not_there_fail_the_action_with_the_reason(
    spark: Any, servers: str
) -> None:
    frame = load(spark, servers, end='{"clicks": {"2": 1001}}')
    with pytest.raises(Exception, match=r"DataLost: clicks-2: records \[1000, 1001\) are not"):
        frame.count()


def test_a_session_without_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark: pip install '.[dev,spark]'")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(JavaNotFound, match="install openjdk"):
        session()


def test_the_arrow_types_are_those_that_spark_derives_from_the_schema(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    spark_schema = spark.createDataFrame([], DDL).schema
    assert arrow_schema(tuple(COLUMNS)).equals(to_arrow_schema(spark_schema, timezone="UTC"))
