"""Streams through Spark itself: checkpoints, triggers, and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread
from tests.spark import stream_kills

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture
def admin(spark: Any, broker: BrokerThread) -> Iterator[Admin]:
    """After `spark`, so that nothing is made to be skipped."""
    with Admin(broker.servers) as running:
        yield running


@pytest.fixture
def read_stream(spark: Any, broker: BrokerThread) -> Callable[..., Any]:
    """Makes streaming frames that begin at the earliest records unless told otherwise."""

    def make(**options: str) -> Any:
        named = {"millrace.servers": broker.servers, "startingOffsets": "earliest", **options}
        return spark.readStream.format("millrace").options(**named).load()

    return make


def produce(broker: BrokerThread, topic: str, start: int, end: int, *, partition: int = 0) -> None:
    """The numbers `[start, end)` as values."""
    with Producer(broker.servers) as producer:
        values = [b"%d" % number for number in range(start, end)]
        producer.send_many(topic, values, partition=partition)


def run_to_the_end(frame: Any, folder: Path) -> list[int]:
    """Runs a stream with the trigger availableNow into files; returns the rows of each batch."""
    writer = frame.selectExpr("topic", "partition", "offset", "cast(value as string) as value")
    query = (
        writer.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress]


def numbers(spark: Any, folder: Path) -> list[int]:
    """All numbers that were written, sorted; a repeated one is there as often as it was."""
    return sorted(int(row.value) for row in spark.read.parquet(str(folder / "out")).collect())


def test_available_now_reads_each_record_once_over_restarts_as_topics_and_partitions_come(
    spark: Any, broker: BrokerThread, admin: Admin, read_stream: Callable[..., Any], tmp_path: Path
) -> None:
    admin.create_topic("sensor-a", partitions=1)
    produce(broker, "sensor-a", 0, 100)
    frame = read_stream(subscribePattern="sensor-.*", commitGroup="sensors")
    assert sum(run_to_the_end(frame, tmp_path)) == 100
    admin.create_partitions("sensor-a", 2)
    admin.create_topic("sensor-b", partitions=1)
    produce(broker, "sensor-a", 100, 110)
    produce(broker, "sensor-a", 110, 150, partition=1)
    produce(broker, "sensor-b", 150, 200)
    assert sum(run_to_the_end(frame, tmp_path)) == 100
    assert sum(run_to_the_end(frame, tmp_path)) == 0
    assert numbers(spark, tmp_path) == list(range(200))
    committed = admin.list_group_offsets("sensors")
    assert {tuple(where): at.offset for where, at in committed.items()} == {
        ("sensor-a", 0): 110,
        ("sensor-a", 1): 40,
        ("sensor-b", 0): 50,
    }


def test_limits_make_micro_batches_of_the_size_they_say(
    spark: Any, broker: BrokerThread, admin: Admin, read_stream: Callable[..., Any], tmp_path: Path
) -> None:
    admin.create_topic("limited", partitions=2)
    produce(broker, "limited", 0, 60)
    produce(broker, "limited", 60, 80, partition=1)
    frame = read_stream(subscribe="limited", maxOffsetsPerTrigger="32")
    rows = run_to_the_end(frame, tmp_path)
    assert [count for count in rows if count] == [32, 32, 16]
    assert numbers(spark, tmp_path) == list(range(80))


def test_a_limit_of_bytes_is_in_force(
    spark: Any, broker: BrokerThread, admin: Admin, read_stream: Callable[..., Any], tmp_path: Path
) -> None:
    admin.create_topic("limited-bytes", partitions=1)
    for start in range(0, 16_000, 2_000):
        produce(broker, "limited-bytes", start, start + 2_000)
    # 2,000 records of 4 to 5 digits take some 25 KB.
    frame = read_stream(subscribe="limited-bytes", maxBytesPerTrigger="60k")
    rows = [count for count in run_to_the_end(frame, tmp_path) if count]
    assert len(rows) >= 3
    assert max(rows) <= 6_000
    assert numbers(spark, tmp_path) == list(range(16_000))


def test_a_running_query_sees_new_records_and_reports_the_latest_offsets(
    spark: Any, broker: BrokerThread, admin: Admin, read_stream: Callable[..., Any], tmp_path: Path
) -> None:
    admin.create_topic("live", partitions=1)
    produce(broker, "live", 0, 10)
    seen: list[int] = []

    def collect(batch: Any, _: int) -> None:
        seen.extend(int(row.value) for row in batch.selectExpr("string(value) value").collect())

    frame = read_stream(subscribe="live")
    query = (
        frame.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for end in (20, 30):
            produce(broker, "live", end - 10, end)
            query.processAllAvailable()
            assert seen == list(range(end))
        (source,) = query.lastProgress["sources"]
        assert '"live":{"0":30}' in str(source["latestOffset"]).replace(" ", "")
    finally:
        query.stop()


def test_values_in_json_are_columns_of_a_stream(
    spark: Any, broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    admin.create_topic("json-stream", partitions=1)
    with Producer(broker.servers) as producer:
        producer.send_many("json-stream", [b'{"user": 7, "page": "home"}', b'{"user": 8}'])
    named = {"millrace.servers": broker.servers, "subscribe": "json-stream"}
    frame = (
        spark.readStream.format("millrace")
        .options(**named, startingOffsets="earliest", valueFormat="json")
        .schema("offset long, user long, page string")
        .load()
    )
    query = (
        frame.writeStream.format("memory")
        .queryName("json_stream")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.table("json_stream").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(0, 7, "home"), (1, 8, None)]


def test_a_stream_of_an_unknown_topic_ends_with_our_sentence(
    admin: Admin, read_stream: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="OptionError") as caught:
        run_to_the_end(read_stream(subscribe="clickz"), tmp_path)
    (line, *_) = str(caught.value).splitlines()
    assert line.endswith(
        "OptionError: subscribe: there is no topic clickz; create it, or correct the name"
    )


def test_a_stream_whose_topic_is_created_anew_ends_with_our_sentence(
    broker: BrokerThread, admin: Admin, read_stream: Callable[..., Any], tmp_path: Path
) -> None:
    admin.create_topic("anew", partitions=1)
    produce(broker, "anew", 0, 5)
    run_to_the_end(read_stream(subscribe="anew"), tmp_path)
    admin.delete_topic("anew")
    admin.create_topic("anew", partitions=1)
    with pytest.raises(Exception, match="DataLost: the topic anew was deleted and created again"):
        run_to_the_end(read_stream(subscribe="anew"), tmp_path)


@pytest.mark.timeout(1_200)
def test_a_stream_that_is_killed_with_its_jvm_writes_each_record_once(
    spark: Any, tmp_path: Path
) -> None:
    summary = stream_kills.run(tmp_path, spark, rounds=2, seed=11)
    assert "each record once" in summary
