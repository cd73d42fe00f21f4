"""Imports as Spark runs them, and killed: each record is in the files once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.pipeline import ImportSettings, follow_topics, import_topics
from millrace_spark.pipeline.errors import RecordUnfit
from millrace_spark.pipeline.value_schema import parse_schema
from tests.spark.import_kills import run_rounds
from tests.spark.told import Told

WARNS_OF_PANDAS = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning"
)


def never() -> Any:
    """For an import that must not need Spark."""
    raise AssertionError("a session was made")


@pytest.mark.spark
@WARNS_OF_PANDAS
def test_imports_write_new_records_only(spark: Any, broker: BrokerThread, tmp_path: Path) -> None:
    with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        admin.create_topic("clicks", partitions=3)
        admin.create_topic("views", partitions=1)
        values = [b"%d" % number for number in range(9_000)]
        for first_number in range(0, 9_000, 1_000):
            some = values[first_number : first_number + 1_000]
            producer.send_many("clicks", some, keys=some)
        producer.send_many("views", [b"-1"])
        settings = ImportSettings(
            ("clicks", "views"),
            str(tmp_path / "out"),
            broker.servers,
            partition_by=("topic", "date"),
            max_partition_bytes="16k",
        )
        first = import_topics(lambda: spark, settings)
        assert (first.batches, first.records, first.lag) == (1, 9_001, 0)
        assert first.group == "import-clicks-views-out"
        assert first.files > 4, "a partition was read in pieces"
        assert import_topics(never, settings).batches == 0
        producer.send_many("views", [b"-2", b"-3"])
        assert import_topics(lambda: spark, settings).records == 2
        found = spark.read.parquet(str(tmp_path / "out")).selectExpr(
            "topic", "cast(string(value) as int)", "partition", "offset"
        )
        rows = found.collect()
        assert sorted(row[1] for row in rows) == [-3, -2, -1, *range(9_000)]
        assert len({(row.topic, row.partition, row.offset) for row in rows}) == len(rows)
        committed = admin.list_group_offsets(first.group)
        assert sum(each.offset for each in committed.values()) == 9_003


@pytest.mark.spark
@WARNS_OF_PANDAS
def test_a_run_of_so_many_records_says_what_it_leaves_for_the_next(
    spark: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        admin.create_topic("portions", partitions=1)
        producer.send_many("portions", [b"%d" % number for number in range(5)])
    settings = ImportSettings(("portions",), str(tmp_path), broker.servers, records_max=3)
    told = Told()
    done = import_topics(lambda: spark, settings, progress=told)
    assert (done.records, done.lag) == (3, 2)
    assert told.messages[-1] == "--max-records: 2 offsets are left for another run"
    done = import_topics(lambda: spark, settings, progress=told)
    assert (done.records, done.lag) == (2, 0)
    assert told.messages[-1].startswith("group "), "nothing is left"


@pytest.mark.spark
@WARNS_OF_PANDAS
def test_following_lands_until_it_is_stopped_and_leaves_no_lag(
    spark: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        admin.create_topic("followed", partitions=1)
        producer.send_many("followed", [b"1"])
        stop = threading.Event()
        settings = ImportSettings(("followed",), str(tmp_path / "out"), broker.servers)

        class More(threading.Event):
            """Produces once more while the import waits, and then ends it."""

            def wait(self, timeout: float | None = None) -> bool:
                if stop.is_set():
                    return True
                producer.send_many("followed", [b"2", b"3"])
                stop.set()
                return False

        done = follow_topics(lambda: spark, settings, stop=More(), every_s=0.1)
    assert (done.batches, done.records, done.lag) == (2, 3, 0)


@pytest.mark.spark
@WARNS_OF_PANDAS
def test_the_error_of_a_task_is_the_error_of_the_import(
    spark: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        admin.create_topic("unfit", partitions=1)
        producer.send_many("unfit", [b"\xff"])
    settings = ImportSettings(("unfit",), str(tmp_path), broker.servers, file_format="json")
    with pytest.raises(RecordUnfit) as caught:
        import_topics(lambda: spark, settings)
    assert str(caught.value) == (
        "unfit-0 [0, 1): a key or value is not UTF-8 text; use --format parquet, which takes "
        "any bytes, with another directory"
    )


def test_imports_killed_between_and_amid_batches_lose_and_repeat_nothing(tmp_path: Path) -> None:
    outcome = run_rounds(tmp_path, rounds=4, seed=tmp_path.stat().st_ino)
    assert outcome.is_exactly_once and outcome.produced > 1_000, outcome


@pytest.mark.spark
@pytest.mark.timeout(1_200)
@WARNS_OF_PANDAS
def test_an_import_killed_with_its_jvm_loses_and_repeats_nothing(
    spark: Any, tmp_path: Path
) -> None:
    outcome = run_rounds(tmp_path, spark=spark, rounds=1, seed=tmp_path.stat().st_ino)
    assert outcome.is_exactly_once and outcome.produced > 1_000, outcome


@pytest.mark.spark
@WARNS_OF_PANDAS
def test_the_fields_of_json_values_land_as_columns_and_bad_values_as_text(
    spark: Any, broker: BrokerThread, tmp_path: Path
) -> None:
    with Admin(broker.servers) as admin, Producer(broker.servers) as producer:
        admin.create_topic("orders", partitions=1)
        values = [
            b'{"user": "ann", "timestamp": 7, "tags": ["a"], "country": "nl"}',
            b"no json",
            None,
            b'{"user": "bob", "country": "de"}',
        ]
        producer.send_many("orders", values, keys=[b"k"] * 4, partition=0)
    settings = ImportSettings(
        ("orders",),
        str(tmp_path),
        broker.servers,
        schema=parse_schema("user string, timestamp long, tags array<string>, country string"),
        partition_by=("country",),
    )
    assert import_topics(lambda: spark, settings).records == 4
    frame = spark.read.parquet(str(tmp_path))
    assert frame.columns == [
        *("key", "user", "timestamp", "tags", "topic", "partition", "offset"),
        *("record_timestamp", "_corrupt_record", "country"),
    ]
    found = frame.select("offset", "user", "timestamp", "tags", "_corrupt_record", "country")
    assert [tuple(row) for row in sorted(found.collect())] == [
        (0, "ann", 7, ["a"], None, "nl"),
        (1, None, None, None, "no json", None),
        (2, None, None, None, None, None),
        (3, "bob", None, None, None, "de"),
    ]
