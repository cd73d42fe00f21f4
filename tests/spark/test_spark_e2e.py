"""Through Spark itself: a query returns the produced records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from millrace import Producer
from millrace._arrow.columns import arrow_schema
from millrace.config import Compression
from millrace.records import Headers
from millrace.sync import Admin
from millrace.sync import Producer as SyncProducer
from millrace_server.testing import BrokerThread
from millrace_spark import JavaNotFound, session
from millrace_spark.reading.schema import COLUMNS, ddl

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
        admin.create_topic("events", partitions=1)
    asyncio.run(produce(broker.servers))
    yield broker.servers


def load(spark: Any, servers: str, *, schema: str | None = None, **options: str) -> Any:
    """A data frame of `clicks`, or of the topic in `options`."""
    given = {"millrace.servers": servers, "subscribe": "clicks", **options}
    reader = spark.read.format("millrace").options(**given)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load()


def offsets_of(frame: Any) -> dict[int, list[int]]:
    """The sorted offsets by partition."""
    found: dict[int, list[int]] = {}
    for partition, offset in frame.select("partition", "offset").collect():
        found.setdefault(partition, []).append(offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def test_every_record_comes_back_as_it_was_produced_with_include_headers(
    spark: Any, servers: str
) -> None:
    frame = load(spark, servers, includeHeaders="true")
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
            tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers or ()),
        )
        for row in found
    ]
    assert sorted(rows, key=lambda row: row[:2]) == ROWS


def test_a_kafka_job_reads_the_same_with_another_format_and_servers(
    spark: Any, servers: str
) -> None:
    frame = load(
        spark,
        servers,
        startingOffsets='{"clicks": {"0": 150, "1": 990, "2": -2}}',
        endingOffsets='{"clicks": {"0": 450, "1": -1, "2": 1}}',
        minPartitions="5",
        failOnDataLoss="false",
    )
    kafka = "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    assert frame.schema.simpleString() == kafka + "timestamp:timestamp,timestampType:int>"
    assert offsets_of(frame) == {0: [*range(150, 450)], 1: [*range(990, 1000)], 2: [0]}
    assert frame.rdd.getNumPartitions() == 5


def test_a_narrowed_schema_reads_these_columns_in_this_order(spark: Any, servers: str) -> None:
    frame = load(spark, servers, schema="value binary, offset long")
    assert frame.columns == ["value", "offset"]
    found = {(None if v is None else bytes(v), offset) for v, offset in frame.collect()}
    assert found == {(row[4], row[1]) for row in ROWS}


def test_several_topics_are_one_frame(spark: Any, servers: str) -> None:
    frame = load(spark, servers, subscribe="empty, clicks", schema="topic string, partition int")
    found = {
        (row.topic, row.partition): row["count"]
        for row in frame.groupBy(*frame.columns).count().collect()
    }
    assert found == {("clicks", partition): 1000 for partition in range(PARTITIONS)}


def test_an_empty_topic_is_an_empty_frame(spark: Any, servers: str) -> None:
    assert load(spark, servers, subscribe="empty").count() == 0


def test_sql_reads_a_topic_as_a_view(spark: Any, servers: str) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW clicks_view USING millrace OPTIONS "
        f"(`millrace.servers` '{servers}', subscribe 'clicks', "
        f"startingTimestamp '{FIRST_MS + 990}')"
    )
    (count,) = spark.sql("SELECT count(*) FROM clicks_view").first()
    assert count == PARTITIONS * 10


@pytest.fixture
def pushing(spark: Any) -> Iterator[None]:
    """Spark is set to push filters down."""
    conf = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(conf, "true")
    yield
    spark.conf.unset(conf)


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize("is_pushed", ["true", "false"])
def test_pushed_filters_narrow_the_read_and_give_the_same_rows(
    spark: Any, servers: str, is_pushed: str
) -> None:
    columns = "partition int, offset long, timestamp timestamp"
    frame = load(spark, servers, schema=columns, pushFilters=is_pushed).where(
        "partition in (0, 2) and offset between 300 and 899 and offset <> 500 "
        f"and timestamp >= timestamp_millis({FIRST_MS + 400})"
        f"and timestamp < timestamp_millis({FIRST_MS + 600})"
    )
    wanted = [n for n in range(400, 600) if n != 500]
    assert offsets_of(frame) == {0: wanted, 2: wanted}
    # The third partition's task is not planned, where filters are pushed.
    assert frame.rdd.getNumPartitions() == (2 if is_pushed == "true" else 3)


@pytest.mark.usefixtures("pushing")
def test_a_frame_that_is_used_again_has_all_of_its_rows_whatever_was_filtered_before(
    spark: Any, servers: str
) -> None:
    frame = load(spark, servers, schema="partition int, offset long")
    first = frame.where("partition = 0 and offset < 300")
    second = frame.where("partition = 1 and offset < 5")
    assert first.count() == 300
    assert frame.count() == len(ROWS)
    assert offsets_of(first.union(second)) == {0: list(range(300)), 1: list(range(5))}


def test_values_in_json_are_columns(spark: Any, servers: str) -> None:
    with SyncProducer(servers) as producer:
        good = [b'{"user": %d, "tags": ["a", "b"], "at": {"x": 1.5}}' % n for n in range(100)]
        producer.send_many("events", [*good, b"oops", None])
    schema = (
        "offset long, user long, tags array<string>, at struct<x: double, false_x: int>, "
        "_corrupt_record string"
    )
    frame = load(spark, servers, schema=schema, subscribe="events", valueFormat="json")
    rows = {row.offset: row for row in frame.collect()}
    assert len(rows) == 102
    assert [rows[n].user for n in range(100)] == list(range(100))
    assert (rows[7].tags, rows[7].at.x, rows[7]._corrupt_record) == (["a", "b"], 1.5, None)
    assert (rows[100].user, rows[100]._corrupt_record) == (None, "oops")
    assert tuple(rows[101])[1:] == (None,) * 4


def told(error: pytest.ExceptionInfo[Exception]) -> str:
    """The first line of what a user sees of an error."""
    return str(error.value).splitlines()[0]


def test_an_error_begins_with_its_sentence(spark: Any, servers: str) -> None:
    with pytest.raises(Exception, match="OptionError") as caught:
        load(spark, servers, startingOffsets="soon")
    assert "source instance: millrace_spark.errors.OptionError: startingOffsets: 'soon' is" in told(
        caught
    )
    with pytest.raises(Exception, match="SchemaError") as caught:
        load(spark, servers, schema="value string").count()
    assert "millrace.errors.SchemaError: schema: value is binary and not string" in told(caught)
    with pytest.raises(Exception, match="UnknownTopic") as caught:
        load(spark, servers, subscribe="nowhere").count()
    assert "UnknownTopicOrPartition: nowhere: There is no topic 'nowhere'" in told(caught)
    with pytest.raises(Exception, match="DataLost") as caught:
        load(spark, servers, endingOffsets='{"clicks": {"2": 1001}}').count()
    assert "DataLost: clicks-2: records [1000, 1001) do not exist" in told(caught)


def test_a_task_that_finds_its_topic_gone_begins_with_the_sentence(
    spark: Any, servers: str
) -> None:
    with Admin(servers) as admin:
        admin.create_topic("brief", partitions=1)
        with SyncProducer(servers) as producer:
            producer.send_many("brief", [b"x"])
        frame = load(spark, servers, subscribe="brief")
        assert len(frame.collect()) == 1
        admin.delete_topic("brief")
    with pytest.raises(Exception, match="DataLost") as caught:
        frame.collect()
    assert "DataLost: brief-0 [0, 1): the topic was deleted" in str(caught.value)[:150]


def test_load_needs_no_broker_and_an_action_fails_at_the_deadline(spark: Any) -> None:
    frame = load(spark, "127.0.0.1:1", deadlineMs="200")
    assert frame.columns == [name for name in COLUMNS if name != "headers"]
    with pytest.raises(Exception, match="ConnectionFailed") as caught:
        frame.count()
    assert "ConnectionFailed: no broker at 127.0.0.1:1" in told(caught)


def test_a_session_without_java_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark: pip install '.[dev,spark]'")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(JavaNotFound, match="install openjdk"):
        session()


def test_the_arrow_types_are_those_that_spark_derives_from_the_schema(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    spark_schema = spark.createDataFrame([], ddl(COLUMNS)).schema
    assert arrow_schema(tuple(COLUMNS)).equals(to_arrow_schema(spark_schema, timezone="UTC"))
