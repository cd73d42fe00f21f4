"""Files that become records, and figures of topics, through Spark and a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from millrace.errors import ConfigError, UnknownTopicOrPartition
from millrace.records import Record
from millrace.sync import Admin, Consumer, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.pipeline.aggregate_run import AggregateSettings, aggregate, query_of
from millrace_spark.pipeline.errors import JobFailed, QueryRefused, TooManyCorrupt
from millrace_spark.pipeline.export_run import ExportSettings, export_files
from millrace_spark.pipeline.import_run import ImportSettings, import_topics
from millrace_spark.pipeline.value_schema import parse_schema
from tests.spark.import_here import run_here

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning"
)
FIRST_MS = int(datetime(2026, 1, 31, 22, 30, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def admin(broker: BrokerThread) -> Iterator[Admin]:
    """A connected admin client."""
    with Admin(broker.servers) as connected:
        yield connected


def records_of(broker: BrokerThread, topic: str, count: int) -> list[Record[bytes, bytes]]:
    """The first `count` records, sorted by value."""
    with Consumer(broker.servers, topic) as consumer:
        found: list[Record[bytes, bytes]] = []
        for record in consumer:
            found.append(record)
            if len(found) == count:
                return sorted(found, key=lambda each: each.value or b"")
    raise AssertionError("the consumer ended")


@pytest.mark.spark
def test_imported_records_go_back_with_key_value_and_headers(
    spark: Any, broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    admin.create_topic("out", partitions=2)
    values = [b"\xff%d" % number for number in range(5)]
    with Producer(broker.servers) as producer:
        producer.send_many("out", values, keys=values, headers=[(("kind", b"test"),)] * 5)
    import_topics(lambda: spark, ImportSettings(("out",), str(tmp_path / "out"), broker.servers))
    settings = ExportSettings(str(tmp_path / "out"), "back", broker.servers, partitions=3)
    assert export_files(lambda: spark, settings).records == 5
    found = records_of(broker, "back", 5)
    assert [(each.key, each.value, each.headers) for each in found] == [
        (value, value, (("kind", b"test"),)) for value in values
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("file_format", "partition_by"),
    [("parquet", ("key", "hour")), ("json", ("topic",)), ("csv", ())],
)
def test_records_go_back_as_they_were_from_files_of_every_form(
    spark: Any,
    broker: BrokerThread,
    admin: Admin,
    tmp_path: Path,
    file_format: str,
    partition_by: tuple[str, ...],
) -> None:
    topic = f"from-{file_format}"
    # Named like a directory of a column, which it is not.
    directory = str(tmp_path / "key=5")
    admin.create_topic(topic, partitions=1)
    sent = [
        (None, b"", (("kind", b"test"), ("none", None))),
        (b"007", b'"a",\r\nb\\', ()),
        (b"2026-01-31", None, ()),
        (b'a/"b"%2F', b"null", ()),
        (b" x", b" ", ()),
    ]
    if "key" not in partition_by:
        sent.append((b"", b"empty", ()))
    keys, values, headers = zip(*sent, strict=True)
    with Producer(broker.servers) as producer:
        producer.send_many(topic, values, keys=keys, headers=headers)
    settings = ImportSettings((topic,), directory, broker.servers, topic, file_format, partition_by)
    assert run_here(settings) == len(sent)
    export = ExportSettings(directory, f"{topic}-back", broker.servers, file_format, partitions=1)
    assert export_files(lambda: spark, export).records == len(sent)
    found = records_of(broker, f"{topic}-back", len(sent))
    # A line of CSV has no room for headers.
    kept = [(key, value, () if file_format == "csv" else each) for key, value, each in sent]
    assert {(each.key, each.value, each.headers) for each in found} == set(kept)


@pytest.mark.spark
@pytest.mark.parametrize("below", ["key=007", "key=007/date=1970-01-02", "key=*/date=1970-01-02"])
def test_one_directory_of_an_import_is_exported_with_the_columns_of_its_path(
    spark: Any, broker: BrokerThread, admin: Admin, tmp_path: Path, below: str
) -> None:
    topic, directory = f"by-key-{below.count('*')}{below.count('/')}", tmp_path / "env=50% of all"
    admin.create_topic(topic, partitions=1, configs={"retention.ms": "-1"})
    with Producer(broker.servers) as producer:
        for key, day in ((b"007", 1), (b"7", 2), (b"007", 2)):
            producer.send(topic, b"x", key=key, timestamp_ms=day * 24 * HOUR_MS)
    settings = ImportSettings(
        (topic,), str(directory), broker.servers, topic, partition_by=("key", "date")
    )
    assert run_here(settings) == 3
    export = ExportSettings(str(directory / below), f"{topic}-back", broker.servers, partitions=1)
    count = 2 if below == "key=007" else 1
    assert export_files(lambda: spark, export).records == count
    found = records_of(broker, f"{topic}-back", count)
    assert [(each.key, each.value) for each in found] == [(b"007", b"x")] * count


@pytest.mark.spark
def test_rows_with_key_value_and_more_are_not_taken_for_records(
    spark: Any, broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    rows = pa.table({"key": ["a"], "value": ["b"], "amount": [3]})
    parquet.write_table(rows, tmp_path / "rows.parquet")
    settings = ExportSettings(str(tmp_path), "amounts", broker.servers, partitions=1)
    assert export_files(lambda: spark, settings).records == 1
    (found,) = records_of(broker, "amounts", 1)
    assert json.loads(found.value or b"") == {"key": "a", "value": "b", "amount": 3}
    assert found.key is None


@pytest.mark.spark
def test_rows_of_csv_become_json_with_a_column_as_key(
    spark: Any, broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text('id,na.me\n007,"a ""b"",\nc"\n8,\n', encoding="utf-8")
    settings = ExportSettings(
        str(tmp_path), "rows", broker.servers, file_format="csv", key="id", partitions=1
    )
    assert export_files(lambda: spark, settings).records == 2
    found = [(each.key, json.loads(each.value or b"")) for each in records_of(broker, "rows", 2)]
    assert found == [(b"007", {"id": "007", "na.me": 'a "b",\nc'}), (b"8", {"id": "8"})]


@pytest.mark.spark
def test_cells_of_csv_are_read_by_name_and_a_bad_one_is_null_and_told(
    spark: Any, broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    text = "origin,temp,at,id\nEWR,39.02,2013-01-31T10:00:00.123456Z,007\nLGA,warm,,8\nJFK,,,\n"
    (tmp_path / "weather.csv").write_text(text, encoding="utf-8")
    settings = ExportSettings(
        str(tmp_path),
        "typed-cells",
        broker.servers,
        file_format="csv",
        key="id",
        schema=parse_schema("id long, temp double, origin string, at timestamp"),
        partitions=1,
    )
    done = export_files(lambda: spark, settings)
    sent = records_of(broker, "typed-cells", 3)
    found = {each.key: json.loads(each.value or b"") for each in sent}
    bad = json.loads(found[b"8"].pop("_corrupt_record"))
    assert found == {
        None: {"origin": "JFK"},
        b"7": {"id": 7, "temp": 39.02, "origin": "EWR", "at": "2013-01-31T10:00:00.123456Z"},
        b"8": {"id": 8, "origin": "LGA"},
    }
    assert bad == {"origin": "LGA", "temp": "warm", "id": "8"}
    assert done.corrupt is not None
    assert done.corrupt.startswith("1 of 3 records has a corrupt value, and null was sent;")
    assert done.corrupt.endswith(", in temp")


@pytest.mark.spark
def test_an_impossible_export_is_refused_before_a_record_is_sent(
    spark: Any, broker: BrokerThread, admin: Admin, tmp_path: Path
) -> None:
    (tmp_path / "rows.json").write_text('{"id": 1, "name": "a"}\n', encoding="utf-8")
    (tmp_path / "rows.csv").write_text("id,name\n1,a\n", encoding="utf-8")

    def fails(error: type[Exception], match: str, **settings: Any) -> None:
        wanted = {
            "directory": str(tmp_path / "rows.json"),
            "topic": "sent",
            "servers": broker.servers,
        }
        with pytest.raises(error, match=match):
            export_files(lambda: spark, ExportSettings(**(wanted | settings)))

    fails(UnknownTopicOrPartition, "sent", file_format="json")
    admin.create_topic("sent", partitions=1)
    fails(ConfigError, "--key: the files have no column 'no'; they have id, name",
          file_format="json", key="no")  # fmt: skip
    fails(JobFailed, "PATH_NOT_FOUND", directory=str(tmp_path / "none"))
    fails(ConfigError, "--schema: the files have no column 'ID'; they have id, name",
          directory=str(tmp_path / "rows.csv"), file_format="csv",
          schema=parse_schema("ID int"))  # fmt: skip
    fails(ConfigError, "files of parquet have a schema", schema=parse_schema("a int"))
    fails(ConfigError, "'xml' is none of parquet", file_format="xml")
    assert admin.list_offsets({("sent", 0): "latest"})["sent", 0].offset == 0  # type: ignore[index]


@pytest.fixture(scope="module")
def visits(broker: BrokerThread, admin: Admin) -> str:
    """A topic with three hours of visits of two users, and one visit without a key."""
    admin.create_topic("visits", partitions=2)
    with Producer(broker.servers) as producer:
        for number in range(6):
            value = json.dumps({"page": f"p{number % 2}", "timestamp": number}).encode()
            producer.send_many(
                "visits",
                [value],
                keys=[(b"ann", b"bob", b"ann", b"ann", b"bob", None)[number]],
                timestamps_ms=[FIRST_MS + (number // 2) * HOUR_MS],
            )
    return "visits"


@pytest.mark.spark
def test_hours_have_records_bytes_and_distinct_keys(
    spark: Any, broker: BrokerThread, visits: str, tmp_path: Path
) -> None:
    value_bytes = len(b'{"page": "p0", "timestamp": 0}')
    settings = AggregateSettings((visits,), broker.servers, to=str(tmp_path / "figures"))
    found = aggregate(lambda: spark, settings)
    assert found.columns == ("hour", "records", "bytes", "keys")
    assert found.rows == (
        ("2026-01-31 22:00:00", "2", str(2 * value_bytes + 6), "2"),
        ("2026-01-31 23:00:00", "2", str(2 * value_bytes + 6), "1"),
        ("2026-02-01 00:00:00", "2", str(2 * value_bytes + 3), "1"),
    )
    assert found.numeric == {"records", "bytes", "keys"} and not found.is_cut
    assert spark.read.parquet(str(tmp_path / "figures")).count() == 3
    with pytest.raises(ConfigError, match="exists already"):
        AggregateSettings((visits,), broker.servers, to=str(tmp_path / "figures"))


@pytest.mark.spark
def test_keys_and_fields_of_values_are_counted_by_how_many_records_they_have(
    spark: Any, broker: BrokerThread, visits: str
) -> None:
    settings = AggregateSettings((visits,), broker.servers, by=("key",), rows_max=2)
    found = aggregate(lambda: spark, settings)
    assert [row[:2] for row in found.rows] == [("ann", "3"), ("bob", "2")] and found.is_cut
    settings = AggregateSettings(
        (visits,), broker.servers, by=("page",), schema=parse_schema("page string, timestamp long")
    )
    rows = aggregate(lambda: spark, settings).rows
    assert [(row[0], row[1], row[3]) for row in rows] == [("p0", "3", "2"), ("p1", "3", "2")]


@pytest.mark.spark
def test_a_query_sees_the_fields_and_the_records_own_columns(
    spark: Any, broker: BrokerThread, visits: str
) -> None:
    settings = AggregateSettings(
        (visits,),
        broker.servers,
        schema=parse_schema("page string, timestamp long"),
        sql="SELECT max(timestamp) AS last, max(record_timestamp) AS at, null AS none FROM visits",
        since="2026-01-31T22:00:00Z",
        until="2026-02-01T00:00:00Z",
    )
    assert aggregate(lambda: spark, settings).rows == (("3", "2026-01-31 23:30:00", None),)
    wrong = AggregateSettings((visits,), broker.servers, sql="SELECT nothing FROM records")
    with pytest.raises(QueryRefused, match=r"the query: .UNRESOLVED_COLUMN.*line 1 pos 7"):
        aggregate(lambda: spark, wrong)
    wrong = AggregateSettings((visits,), broker.servers, sql="SELEC page FROM records")
    with pytest.raises(QueryRefused, match=r"the query: .PARSE_SYNTAX_ERROR.*line 1, pos 0"):
        aggregate(lambda: spark, wrong)
    unknown = AggregateSettings(("none",), broker.servers)
    with pytest.raises(UnknownTopicOrPartition):
        aggregate(lambda: spark, unknown)


@pytest.mark.spark
def test_more_corrupt_records_than_allowed_end_a_query_without_files(
    spark: Any, broker: BrokerThread, visits: str, tmp_path: Path
) -> None:
    query = "SELECT timestamp FROM records ORDER BY timestamp"
    settings = AggregateSettings(
        (visits,), broker.servers, schema=parse_schema("page long, timestamp long"), sql=query
    )
    warned = aggregate(lambda: spark, settings)
    assert len(warned.rows) == 6
    assert warned.corrupt is not None
    assert warned.corrupt.startswith("6 of 6 records have corrupt values, 6 fields in all")
    for limit, to in (("5", None), ("99.9%", str(tmp_path / "files"))):
        with pytest.raises(TooManyCorrupt, match=f"6 of 6 .* and --max-corrupt is {limit}"):
            aggregate(lambda: spark, replace(settings, max_corrupt=limit, to=to))
    assert not (tmp_path / "files").exists()
    allowed = replace(settings, max_corrupt="6", to=str(tmp_path / "files"))
    assert aggregate(lambda: spark, allowed).rows == warned.rows
    assert spark.read.parquet(str(tmp_path / "files")).count() == 6


@pytest.mark.spark
def test_times_bound_the_records_whatever_their_order(spark: Any, broker: BrokerThread) -> None:
    noon_ms = 1_769_860_800_000
    minutes = [-120, 10, -60, 70, 45, 59, 60, 0]
    with Admin(broker.servers) as admin:
        admin.create_topic("unordered", partitions=1)
    with Producer(broker.servers) as producer:
        for minute in minutes:
            producer.send("unordered", b"%d" % minute, timestamp_ms=noon_ms + minute * 60_000)
    found = aggregate(
        lambda: spark,
        AggregateSettings(
            ("unordered",),
            broker.servers,
            sql="SELECT string(value) AS minute FROM records ORDER BY offset",
            since="2026-01-31T12:00:00Z",
            until=str(noon_ms + 3_600_000),
        ),
    )
    assert found.rows == (("10",), ("45",), ("59",), ("0",))


@pytest.mark.parametrize(
    ("option", "since", "until"), [("--since", "noon", None), ("--until", None, "noon")]
)
def test_a_time_that_is_none_is_named_by_its_option(
    option: str, since: str | None, until: str | None
) -> None:
    with pytest.raises(ConfigError, match=f"{option}: 'noon' is neither milliseconds"):
        AggregateSettings(("clicks",), since=since, until=until)


def test_a_query_of_columns_counts_distinct_keys_unless_it_is_by_key() -> None:
    schema = parse_schema("key string, `a``b` long")
    settings = AggregateSettings(("clicks",), by=("a`b", "key"), schema=schema)
    assert query_of(settings) == (
        "SELECT `a``b`, `key`, count(*) AS records, "
        "coalesce(sum(octet_length(`record_key`)), 0) + coalesce(sum(octet_length(`value`)), 0) "
        "AS bytes, count(DISTINCT `record_key`) AS keys FROM records GROUP BY `a``b`, `key` "
        "ORDER BY records DESC, `a``b`, `key`"
    )
