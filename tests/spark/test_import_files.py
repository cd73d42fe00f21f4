"""The files of an import, from a real broker to a real disk, without Spark around the tasks."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyarrow import dataset, orc

from millrace.errors import ConfigError, UnknownTopicOrPartition
from millrace.records import TopicPartition
from millrace.sync import Admin, Consumer, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.errors import DataLost
from millrace_spark.pipeline.directory import ImportDirectory
from millrace_spark.pipeline.errors import DirectoryInUse, ImportRefused, LedgerError, RecordUnfit
from millrace_spark.pipeline.import_plan import ImportPolicy
from millrace_spark.pipeline.import_run import ImportSettings
from millrace_spark.pipeline.importer import Importer
from millrace_spark.pipeline.ledger import Ledger, Span
from millrace_spark.pipeline.partition_paths import cut, partition_columns
from millrace_spark.pipeline.range_task import RangeResult, RangeTask, file_name
from millrace_spark.pipeline.topic_log import TopicLog
from millrace_spark.pipeline.value_schema import parse_schema
from millrace_spark.reading.ranges import OffsetRange
from tests.spark.import_here import InThisProcess, run_here

HOUR_MS = 3_600_000
FIRST_MS = int(datetime(2026, 1, 31, 22, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(scope="module")
def admin(broker: BrokerThread) -> Iterator[Admin]:
    """A connected admin client."""
    with Admin(broker.servers) as connected:
        yield connected


def run(broker: BrokerThread, to: Path, *topics: str, **settings: Any) -> int:
    """One import; returns how many records it landed."""
    return run_here(
        ImportSettings(topics, str(to), broker.servers, f"import-{to.name}", **settings)
    )


def files_of(directory: Path) -> list[str]:
    """What a reader of files sees."""
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and not path.relative_to(directory).parts[0].startswith("_")
    )


def produced(broker: BrokerThread, admin: Admin, topic: str, values: list[bytes | None]) -> None:
    """Records of one partition, an hour apart, every third without a key."""
    admin.create_topic(topic, partitions=1)
    with Producer(broker.servers) as producer:
        producer.send_many(
            topic,
            values,
            keys=[None if index % 3 == 0 else b"k%d" % index for index in range(len(values))],
            headers=[(("kind", b"test"),)] * len(values),
            timestamps_ms=[FIRST_MS + index * HOUR_MS for index in range(len(values))],
            partition=0,
        )


def test_parquet_has_every_byte_and_the_columns_of_a_read(
    broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    produced(broker, admin, "bytes", [b"\xff\x00", None, b"", b"four"])
    assert run(broker, tmp_path / "out", "bytes") == 4
    found = dataset.dataset(tmp_path / "out").to_table().to_pylist()
    assert [row["value"] for row in found] == [b"\xff\x00", None, b"", b"four"]
    assert [row["key"] for row in found] == [None, b"k1", b"k2", None]
    assert found[2] == {
        "key": b"k2",
        "value": b"",
        "topic": "bytes",
        "partition": 0,
        "offset": 2,
        "timestamp": datetime(2026, 2, 1, 0, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "kind", "value": b"test"}],
    }


@pytest.mark.parametrize("schema", [None, "a long"])
def test_a_timestamp_that_spark_has_no_value_for_is_null_and_stops_nothing(
    broker: BrokerThread, admin: Admin, tmp_path: Path, schema: str | None
) -> None:
    topic = f"late-{schema is None}"
    no_bound = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    admin.create_topic(topic, partitions=1, configs=no_bound)
    last_ms = (2**63 - 1) // 1000
    with Producer(broker.servers) as producer:
        producer.send_many(
            topic, [b"{}"] * 3, timestamps_ms=[FIRST_MS, last_ms + 1, last_ms], partition=0
        )
    parsed = None if schema is None else parse_schema(schema)
    assert run(broker, tmp_path / "out", topic, schema=parsed) == 3
    (file,) = files_of(tmp_path / "out")
    times = dataset.dataset(tmp_path / "out" / file).to_table().column("timestamp").cast(pa.int64())
    assert times.to_pylist() == [FIRST_MS * 1000, None, last_ms * 1000]
    assert run(broker, tmp_path / "by", topic, schema=parsed, partition_by=("hour",)) == 3
    assert any(
        "date=__HIVE_DEFAULT_PARTITION__/hour=" in name for name in files_of(tmp_path / "by")
    )


def written(path: Path) -> tuple[int, int]:
    """Which file it is, and when it was written last."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def test_a_run_without_news_changes_nothing_and_one_with_news_adds_files(
    broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    produced(broker, admin, "twice", [b"1", b"2"])
    assert run(broker, tmp_path / "out", "twice") == 2
    ledger = written(tmp_path / "out/_millrace/ledger.json")
    assert run(broker, tmp_path / "out", "twice") == 0
    assert written(tmp_path / "out/_millrace/ledger.json") == ledger
    with Producer(broker.servers) as producer:
        producer.send_many("twice", [b"3"])
    assert run(broker, tmp_path / "out", "twice") == 1
    assert files_of(tmp_path / "out") == [
        "part-twice-0-00000000000000000000-00000000000000000002.parquet",
        "part-twice-0-00000000000000000002-00000000000000000003.parquet",
    ]
    assert admin.list_group_offsets("import-out")[TopicPartition("twice", 0)].offset == 3


def test_hours_are_directories_that_readers_of_files_understand(
    broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    produced(broker, admin, "hours", [b"%d" % n for n in range(5)])
    assert run(broker, tmp_path / "out", "hours", partition_by=("topic", "hour")) == 5
    name = "part-hours-0-00000000000000000000-00000000000000000005.parquet"
    assert files_of(tmp_path / "out") == [
        f"topic=hours/date=2026-01-31/hour=22/{name}",
        f"topic=hours/date=2026-01-31/hour=23/{name}",
        f"topic=hours/date=2026-02-01/hour=00/{name}",
        f"topic=hours/date=2026-02-01/hour=01/{name}",
        f"topic=hours/date=2026-02-01/hour=02/{name}",
    ]
    found = dataset.dataset(tmp_path / "out", partitioning="hive").to_table().to_pylist()
    assert sorted((row["offset"], row["hour"], row["topic"]) for row in found) == [
        (offset, (22 + offset) % 24, "hours") for offset in range(5)
    ]


def test_csv_and_json_have_text_and_tell_null_from_empty(
    broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    values = ['a "quoted", line\nand another', None, "", "é"]
    produced(broker, admin, "text", [None if v is None else v.encode() for v in values])
    run(broker, tmp_path / "csv", "text", file_format="csv")
    run(broker, tmp_path / "json", "text", file_format="json")
    (csv_file,) = (tmp_path / "csv").glob("*.csv")
    with csv_file.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["value"] for row in rows] == ["" if v is None else v for v in values]
    assert '"k1",,"text",0,1,' in csv_file.read_text(encoding="utf-8")
    (json_file,) = (tmp_path / "json").glob("*.json")
    lines = [json.loads(line) for line in json_file.read_text(encoding="utf-8").splitlines()]
    assert [line["value"] for line in lines] == values
    assert lines[1] == {
        "key": "k1",
        "value": None,
        "topic": "text",
        "partition": 0,
        "offset": 1,
        "timestamp": "2026-01-31T23:00:00.000000Z",
        "timestampType": 0,
        "headers": [{"key": "kind", "value": "test"}],
    }


def test_orc_has_every_byte(broker: BrokerThread, admin: Admin, tmp_path: Path) -> None:
    produced(broker, admin, "orc", [b"\xff\x00", None])
    run(broker, tmp_path / "out", "orc", file_format="orc")
    (file,) = (tmp_path / "out").glob("*.orc")
    found = orc.read_table(file)
    assert found.column("value").to_pylist() == [b"\xff\x00", None]
    assert found.column("headers").to_pylist()[0] == [{"key": "kind", "value": b"test"}]


def test_bytes_that_are_no_text_are_refused_by_text_formats_and_land_after_all_in_another(
    broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    produced(broker, admin, "binary", [b"\xff"])
    with pytest.raises(RecordUnfit, match=r"binary-0 \[0, 1\): a key or value is not UTF-8.*parq"):
        run(broker, tmp_path / "out", "binary", file_format="csv")
    assert files_of(tmp_path / "out") == []
    assert not any((tmp_path / "out/_millrace/staging").iterdir())
    assert run(broker, tmp_path / "other", "binary") == 1


def test_a_task_on_a_machine_without_the_directory_writes_no_file(tmp_path: Path) -> None:
    settings = ImportSettings(("clicks",), str(tmp_path / "out"))
    options = TopicLog("127.0.0.1:1").read_options(
        {TopicPartition("clicks", 0): Span(str(UUID(int=1)), 0, 2)}
    )
    task = RangeTask(ImportDirectory(settings.to), 1, settings.layout, options)
    with pytest.raises(ImportRefused, match="that the driver and all workers have mounted"):
        task.write(0, OffsetRange("clicks", str(UUID(int=1)), 0, 0, 2))
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_runs_again_keeps_the_file_that_may_be_read(
    broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    produced(broker, admin, "again", [b"1", b"2"])
    directory = ImportDirectory(str(tmp_path / "out"))
    log = TopicLog(broker.servers)
    (where, extent) = next(iter(log.extents(["again"]).items()))
    wanted = OffsetRange("again", extent.topic_id, 0, 0, 2)
    shape = ImportSettings(("again",), "out").layout
    options = log.read_options({where: Span(extent.topic_id, 0, 2)})
    task = RangeTask(directory, 1, shape, options)
    with directory.locked():
        directory.store(Ledger("d1", "again", shape))
    first = task.write(0, wanted)
    path = tmp_path / "out" / file_name(wanted, "parquet")
    before = written(path)
    assert task.write(0, wanted) == first
    assert written(path) == before
    assert {index: RangeResult.decode(text) for index, text in directory.markers(1).items()} == {
        0: first
    }


def test_a_topic_that_was_deleted_or_created_again_is_told_of(
    broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    produced(broker, admin, "trimmed", [b"1", b"2"])
    assert run(broker, tmp_path / "out", "trimmed") == 2
    admin.delete_topic("trimmed")
    with pytest.raises(UnknownTopicOrPartition):
        run(broker, tmp_path / "out", "trimmed")
    produced(broker, admin, "trimmed", [b"1", b"2", b"3"])
    with pytest.raises(ImportRefused, match="created again"):
        run(broker, tmp_path / "out", "trimmed")


def test_a_landing_whose_topic_was_deleted_is_finished_without_it_only_when_asked_to(
    broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    produced(broker, admin, "doomed", [b"1"])
    directory = ImportDirectory(str(tmp_path / "out"))
    settings = ImportSettings(("doomed",), str(tmp_path / "out"), broker.servers)
    log = TopicLog(broker.servers)
    fresh = Ledger("d1", "import-doomed", settings.layout)
    with directory.locked():
        tasks = InThisProcess(directory, log)
        importer = Importer.open(directory, log, tasks, fresh=fresh, group=None)
        assert importer.begin_batch(["doomed"], ImportPolicy()) is not None
        admin.delete_topic("doomed")
        with pytest.raises(DataLost, match=r"deleted.*--skip-lost"):
            importer.write_batch()
        lenient = TopicLog(broker.servers, skip_lost=True)
        importer = Importer.open(
            directory, lenient, InThisProcess(directory, lenient), fresh=fresh, group=None
        )
        assert importer.write_batch() == RangeResult(0, 0, 0)


def test_a_group_with_members_is_refused_before_anything_is_written(
    broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    produced(broker, admin, "shared", [b"1"])
    with Consumer(broker.servers, "shared", group="import-out") as consumer:
        next(consumer.batches(timeout_ms=10_000))
        with pytest.raises(ImportRefused, match=r"import-out has 1 members.*--group"):
            run(broker, tmp_path / "out", "shared")
    assert not (tmp_path / "out/_millrace/ledger.json").exists()


# Directories


def test_two_imports_into_one_directory_are_one_too_many(tmp_path: Path) -> None:
    directory = ImportDirectory(str(tmp_path / "out"))
    with directory.locked(), pytest.raises(DirectoryInUse, match=r"by process \d+ on "):
        ImportDirectory(f"file://{tmp_path}/out").locked().__enter__()
    with directory.locked():
        pass


def test_a_directory_with_foreign_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").touch()
    with (
        pytest.raises(ImportRefused, match="files that no import wrote"),
        ImportDirectory(str(tmp_path)).locked(),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["data.parquet"]


@pytest.mark.parametrize("place", ["s3://bucket/clicks", "s3a:clicks", "hdfs:/clicks", "a:b/c"])
def test_a_place_that_is_no_local_path_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=f"--to {place}: only local paths"):
        ImportDirectory(place)


@pytest.mark.parametrize("place", ["file:clicks", "file://host/clicks", "file:", "file:////x"])
def test_a_file_uri_without_a_whole_path_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=f"--to {place}: a file URI needs an absolute path"):
        ImportDirectory(place)


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("file:/data/a:b", "/data/a:b"),
        ("file:///data/a%20b", "/data/a%20b"),
        ("/data/a:b", "/data/a:b"),
        ("./a:b", "a:b"),
        ("data/a:b", "data/a:b"),
        ("7:30", "7:30"),
    ],
)
def test_a_local_path_is_taken_as_spark_takes_it(place: str, path: str) -> None:
    assert ImportDirectory(place).path == Path.cwd() / path


def test_a_ledger_that_is_damaged_stops_the_import(tmp_path: Path) -> None:
    directory = ImportDirectory(str(tmp_path / "out"))
    with directory.locked():
        (tmp_path / "out/_millrace/ledger.json").write_bytes(b"{")
        with pytest.raises(LedgerError, match=r"ledger.json is damaged.*another directory"):
            directory.load()


def test_unfinished_files_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    directory = ImportDirectory(str(tmp_path / "out"))
    with directory.locked():
        staged = directory.staged()
        file, path = staged.__enter__()
        file.write(b"half")
        directory.mark(3, 0, "done")
        assert path.exists()
        directory.delete_temporary()
        assert not path.exists() and directory.markers(3) == {}
        staged.__exit__(None, None, None)


def test_names_of_files_are_bounded_and_never_hidden() -> None:
    long = OffsetRange("_" + "x" * 248, "t1", 2**31 - 1, 2**63 - 2, 2**63 - 1)
    other = OffsetRange("_" + "x" * 247 + "y", "t1", 2**31 - 1, 2**63 - 2, 2**63 - 1)
    assert len(file_name(long, "parquet")) <= 255
    assert file_name(long, "parquet").startswith("part-_xxx")
    assert file_name(long, "parquet") != file_name(other, "parquet")


# Directories by value


def test_a_directory_that_would_hide_a_field_from_spark_is_refused() -> None:
    assert partition_columns(["Date"], ["key", "Date"]) == ("Date",)
    for wanted, field in (("date", "Date"), ("hour", "Date"), ("hour", "HOUR")):
        with pytest.raises(ConfigError, match=f"would hide the field {field},"):
            partition_columns([wanted], ["key", field])


def test_values_are_escaped_as_spark_does_and_null_has_a_name() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"at": ["a/b", None, "", "é=1", "a/b"], "n": [1, 2, 3, 4, 5]}
    )
    found = {path: rows.column("n").to_pylist() for path, rows in cut(batch, ["at"])}
    assert found == {
        "at=a%2Fb": [1, 5],
        "at=__HIVE_DEFAULT_PARTITION__": [2, 3],
        "at=é%3D1": [4],
    }


def test_bytes_that_could_not_be_told_from_null_are_told_of() -> None:
    keys = pa.RecordBatch.from_pydict({"key": [b"a", None], "n": [1, 2]})
    paths = [path for path, _ in cut(keys, ["key"])]
    assert paths == ["key=a", "key=__HIVE_DEFAULT_PARTITION__"]
    empty = pa.RecordBatch.from_pydict({"key": [b"a", None, b""], "n": [1, 2, 3]})
    with pytest.raises(RecordUnfit, match="key is empty, and would be in the directory for null"):
        list(cut(empty, ["key"]))
    literal = pa.RecordBatch.from_pydict({"at": ["__HIVE_DEFAULT_PARTITION__"], "n": [1]})
    with pytest.raises(RecordUnfit, match=r"at has the value __HIVE\w+, which stands for null"):
        list(cut(literal, ["at"]))


def test_a_value_too_long_for_a_name_is_told_of() -> None:
    batch = pa.RecordBatch.from_pydict({"at": ["x" * 300], "n": [1]})
    with pytest.raises(RecordUnfit, match="at has a value of 300 characters"):
        list(cut(batch, ["at"]))


def test_a_field_that_spark_takes_for_another_column_is_refused() -> None:
    for schema in ("timestamp long, Record_Timestamp long", "`_Corrupt_Record` string"):
        with pytest.raises(ConfigError, match=r"another column is named (record_t|_corrupt_r)"):
            ImportSettings(("clicks",), "out", schema=parse_schema(schema))


def test_columns_that_are_not_there_are_named() -> None:
    assert partition_columns(["hour", "date", "key"], ["key", "value"]) == ("date", "hour", "key")
    with pytest.raises(ConfigError, match="no column 'region'; there are date, hour, key, value"):
        partition_columns(["region"], ["key", "value"])
    with pytest.raises(ConfigError, match="leave at least one column"):
        partition_columns(["key"], ["key"])
