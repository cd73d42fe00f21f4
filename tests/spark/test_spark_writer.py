"""Frames and streams written through Spark itself: consumers read the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.sync import Admin, Consumer, Producer
from millrace_server.testing import BrokerThread
from millrace_spark import SchemaError, without_duplicates
from millrace_spark.writing.deduplication import ATTEMPT, BATCH, HEADERS, QUERY, TASK

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

PARTITIONS = 2
TOPICS = ("written", "placed", "retried", "streamed", "refused")


@pytest.fixture(scope="module")
def servers(spark: Any, broker: BrokerThread) -> Iterator[str]:
    """A broker with the topics; after `spark`, so that nothing is made to be skipped."""
    with Admin(broker.servers) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, partitions=PARTITIONS)
    yield broker.servers


def write(frame: Any, servers: str, *, mode: str | None = "append", **options: str) -> None:
    """Writes a batch frame."""
    writer = frame.write.format("millrace").option("millrace.servers", servers).options(**options)
    (writer.mode(mode) if mode else writer).save()


def read(spark: Any, servers: str, topic: str) -> Any:
    """All records of a topic, as a frame."""
    reader = spark.read.format("millrace").option("millrace.servers", servers)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def consumed(servers: str, topic: str) -> list[Any]:
    """All records of a topic, as a consumer gets them."""
    with Consumer(servers) as consumer:
        partitions = [(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(partitions, start="earliest")
        count = sum(consumer.end_offsets(*partitions).values())
        return [consumer.getone(timeout_ms=10_000) for _ in range(count)]


def test_a_consumer_reads_the_rows_of_a_written_frame(spark: Any, servers: str) -> None:
    headers = "array(struct('kind' as key, cast('click' as binary) as value))"
    frame = spark.range(0, 3_000, numPartitions=3).selectExpr(
        "if(id % 5 = 0, null, concat('value-', id)) as value",
        "if(id % 3 = 0, null, cast(concat('key-', id % 7) as binary)) as key",
        f"if(id % 2 = 0, {headers}, null) as headers",
        "cast(id % 2 as int) as partition",
        "'written' as topic",
        "current_timestamp() as timestamp",
    )
    write(frame, servers)
    wanted = Counter(
        (
            number % 2,
            None if number % 3 == 0 else b"key-%d" % (number % 7),
            None if number % 5 == 0 else b"value-%d" % number,
            (("kind", b"click"),) if number % 2 == 0 else (),
        )
        for number in range(3_000)
    )
    found = consumed(servers, "written")
    assert Counter((r.partition, r.key, r.value, r.headers) for r in found) == wanted


def test_keys_are_placed_as_the_producer_places_them(spark: Any, servers: str) -> None:
    frame = spark.range(500).selectExpr("cast(id as string) as value", "concat('k', id) as key")
    write(frame, servers, topic="placed", compression="lz4")
    placed = {record.key: record.partition for record in consumed(servers, "placed")}
    keys = [b"k%d" % number for number in range(500)]
    with Producer(servers) as producer:
        receipts = producer.send_many("refused", keys, keys=keys)
        assert placed == {key: receipts[row].partition for row, key in enumerate(keys)}


def test_a_task_that_fails_midway_and_is_tried_again_loses_nothing(
    spark: Any, servers: str, tmp_path: Path
) -> None:
    marker = str(tmp_path / "failed")

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 2 and batch.column("id")[0].as_py() < 10_000:
                try:
                    Path(marker).touch(exist_ok=False)
                except FileExistsError:
                    pass
                else:
                    raise RuntimeError("injected: this task fails once")
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        rows = spark.range(0, 20_000, numPartitions=2).mapInArrow(fail_once, "id long")
        write(rows.selectExpr("cast(id as string) as value"), servers, topic="retried")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert Path(marker).exists()
    found = Counter(int(record.value) for record in consumed(servers, "retried"))
    assert found.keys() == set(range(20_000))
    assert max(found.values()) <= 2


def test_a_stream_from_its_checkpoint_loses_nothing_and_its_repeats_can_be_dropped(
    spark: Any, servers: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        lines = spark.readStream.schema("value string").text(str(source))
        rows = lines.repartition(2).selectExpr("value", "value as key")
        writer = rows.writeStream.format("millrace").option("millrace.servers", servers)
        writer = writer.option("topic", "streamed").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(100)

    wanted = [str(number) for number in range(600)]
    (source / "a.txt").write_text("\n".join(wanted[:300]) + "\n")
    run()
    # As if the driver had died when the batch was written and before it was noted as done.
    for noted in (checkpoint / "commits").glob("*0*"):
        noted.unlink()
    (source / "b.txt").write_text("\n".join(wanted[300:]) + "\n")
    run()

    written = [record.value.decode() for record in consumed(servers, "streamed")]
    assert Counter(written) == Counter([*wanted, *wanted[:300]])
    with Producer(servers) as producer:
        producer.send_many("streamed", [b"mine", b"mine", None])
    frame = read(spark, servers, "streamed")
    kept = [row.value for row in without_duplicates(frame).select("value").collect()]
    assert Counter(kept) == Counter([*(text.encode() for text in wanted), b"mine", b"mine", None])
    assert without_duplicates(frame).columns == frame.columns
    with pytest.raises(SchemaError, match="the frame has no headers"):
        without_duplicates(frame.drop("headers"))

    marks = [dict(record.headers) for record in consumed(servers, "streamed") if record.headers]
    assert all(tuple(mark) == HEADERS for mark in marks)
    assert len({mark[QUERY] for mark in marks}) == 1
    assert {mark[BATCH] for mark in marks} == {b"0", b"1"}
    assert {mark[TASK] for mark in marks} == {b"0", b"1"}
    assert len({mark[ATTEMPT] for mark in marks}) == 6


def test_of_attempts_of_a_task_the_fullest_is_kept_and_the_latest_of_equals(
    spark: Any, servers: str
) -> None:
    def attempt(task: str, name: str, values: str) -> list[Any]:
        marks = (b"q", b"1", task.encode(), name.encode())
        headers = list(zip(HEADERS, marks, strict=True))
        return [(headers, "t", f"{name}:{value}") for value in values]

    rows = [
        *attempt("0", "01", "ab"),
        *attempt("0", "02", "cab"),
        *attempt("0", "03", "a"),
        *attempt("1", "04", "xyx"),
        *attempt("1", "05", "xxy"),
        *[([("other", b"1")], "t", "plain"), (None, "t", "none")],
    ]
    frame = spark.createDataFrame(
        rows, "headers array<struct<key:string,value:binary>>, topic string, value string"
    )
    kept = sorted(row.value for row in without_duplicates(frame).collect())
    assert kept == ["02:a", "02:b", "02:c", "05:x", "05:x", "05:y", "none", "plain"]


def test_an_impossible_write_fails_with_one_sentence(spark: Any, servers: str) -> None:
    from pyspark.errors import PySparkException

    with Admin(servers) as admin:
        admin.create_topic("kept", partitions=1, configs={"cleanup.policy": "compact"})
    rows = spark.range(2).selectExpr("cast(id as string) as value")
    cases = [
        (rows, "overwrite", {"topic": "refused"}, 'not overwritten; use .mode("append")'),
        # Spark refuses these itself, before it asks the source.
        (rows, None, {"topic": "refused"}, 'use either the "Append"'),
        (rows, "ignore", {"topic": "refused"}, 'use either the "Append"'),
        (rows, "append", {}, "topic: there is no such column, only value, nor an option"),
        (rows, "append", {"topics": "refused"}, "topics: no such option; did you mean topic?"),
        (spark.range(2), "append", {"topic": "refused"}, "value: there is no such column, only id"),
        (
            rows.coalesce(1),
            "append",
            {"topic": "nowhere"},
            "There is no topic 'nowhere'; create it first",
        ),
        (rows.coalesce(1), "append", {"topic": "kept"}, "Record 0 of the batch has no key"),
    ]
    for frame, mode, options, sentence in cases:
        with pytest.raises(PySparkException) as raised:
            write(frame, servers, mode=mode, **options)
        # Of a task, Spark says in a line of its own that Python raised it.
        assert sentence in "".join(str(raised.value).splitlines()[:2])
