"""A topic is a table: for Arrow, pandas, Polars and DuckDB, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import millrace
from millrace.errors import ConfigError, SchemaError, UnknownTopicOrPartition
from millrace.sync import Admin, Producer, read_arrow, topic_dataset
from millrace_server.testing import BrokerThread

COUNT = 20_000
TIME_MS = 1_700_000_000_000
FIELDS = pa.schema([("user", pa.int64()), ("page", pa.string())])


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """With topic `t`: record N of a partition has user N, and time N seconds after the first."""
    topic = {"durability": "os", "retention.ms": "-1"}
    with BrokerThread(topic=topic) as running:
        with Admin(running.servers) as admin:
            admin.create_topic("t", partitions=2)
            admin.create_topic("empty")
        with Producer(running.servers, batch_bytes=16 * 1024) as producer:
            for partition in range(2):
                producer.send_many(
                    "t",
                    [
                        json.dumps({"user": n, "page": f"/{n % 7}", "pad": "x" * 80}).encode()
                        for n in range(COUNT)
                    ],
                    keys=[b"%d" % (n % 7) for n in range(COUNT)],
                    timestamps_ms=[TIME_MS + 1000 * n for n in range(COUNT)],
                    partition=partition,
                )
        yield running


def sent_bytes(broker: BrokerThread) -> int:
    return int(broker.statistics().value("millrace_sent_bytes_total"))


def test_a_topic_is_read_as_columns_with_typed_fields(broker: BrokerThread) -> None:
    reader = read_arrow("t", broker.servers, fields=FIELDS)
    assert isinstance(reader, pa.RecordBatchReader)
    table = reader.read_all().sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert table.column_names == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
        *("user", "page"),
    ]
    assert table.num_rows == 2 * COUNT
    row = table.slice(COUNT + 17, 1).to_pylist()[0]
    assert json.loads(row.pop("value")) == {"user": 17, "page": "/3", "pad": "x" * 80}
    assert row == {
        "key": b"3",
        "topic": "t",
        "partition": 1,
        "offset": 17,
        "timestamp": datetime.fromtimestamp(TIME_MS / 1000 + 17, UTC),
        "timestampType": 0,
        "headers": None,
        "user": 17,
        "page": "/3",
    }


async def test_the_async_reader_returns_the_same_batches(broker: BrokerThread) -> None:
    columns = ["user", "offset"]
    async with millrace.read_arrow("t", broker.servers, fields=FIELDS, columns=columns) as reader:
        assert reader.schema.names == columns
        rows = [row for batch in [b async for b in reader] for row in batch.to_pylist()]
    assert sorted(row["offset"] for row in rows) == sorted([*range(COUNT), *range(COUNT)])
    assert all(row["user"] == row["offset"] for row in rows)
    async with millrace.read_arrow("t", broker.servers, columns=["offset"]) as reader:
        assert (await reader.read_all()).num_rows == 2 * COUNT


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ({"start": {0: 19_990}, "partitions": [0]}, range(19_990, COUNT)),
        ({"start": {0: 5}, "end": {0: 8}, "partitions": [0]}, range(5, 8)),
        ({"start": TIME_MS + 19_998_500, "partitions": [1]}, range(19_999, COUNT)),
        (
            {
                "start": datetime.fromtimestamp(TIME_MS / 1000 + 3, UTC),
                "end": TIME_MS + 6_000,
                "partitions": [1],
            },
            range(3, 6),
        ),
        ({"start": TIME_MS + 10**9, "partitions": [0]}, range(0)),
        ({"end": TIME_MS, "partitions": [0]}, range(0)),
    ],
)
def test_bounds_are_offsets_or_times(
    broker: BrokerThread, bounds: dict[str, object], wanted: range
) -> None:
    reader = read_arrow("t", broker.servers, columns=["offset"], **bounds)  # type: ignore[arg-type]
    assert reader.read_all().column("offset").to_pylist() == list(wanted)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"start": {0: COUNT + 1}}, "start: t-0 has offsets from 0 to 20000, and 20001 is not"),
        ({"start": {7: 1}}, "start: the read has no partition 7"),
        ({"partitions": [2]}, "partitions: t has no partition 2; it has 0 to 1"),
        ({"start": "latest"}, "start: 'latest' is not 'earliest', milliseconds"),
        ({"end": datetime(2013, 1, 1)}, "end: 2013-01-01 00:00:00 has no time zone"),
        ({"start": datetime(1969, 1, 1, tzinfo=UTC)}, "start: a record has no time before 1970"),
    ],
)
def test_bounds_that_cannot_be_are_one_sentence(
    broker: BrokerThread, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_arrow("t", broker.servers, **arguments)  # type: ignore[arg-type]


def test_unknown_topics_and_columns_are_refused_by_the_call(broker: BrokerThread) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        read_arrow("nosuch", broker.servers)
    with pytest.raises(SchemaError, match="no column 'usr'; there are key, value"):
        read_arrow("t", broker.servers, columns=["usr"])
    with pytest.raises(SchemaError, match="user is named twice; SQL ignores case"):
        read_arrow("t", broker.servers, fields=pa.schema([("user", "int64"), ("User", "int64")]))


def test_a_records_column_makes_room_for_a_field_of_its_name(broker: BrokerThread) -> None:
    fields = pa.schema([("Offset", pa.int64()), ("user", pa.int64())])
    reader = read_arrow("t", broker.servers, fields=fields, columns=["record_offset", "Offset"])
    assert reader.read_next_batch().slice(0, 1).to_pylist() == [
        {"record_offset": 0, "Offset": None}
    ]
    dataset = topic_dataset("t", broker.servers, fields=fields)
    assert dataset.to_table(filter=ds.field("record_offset") < 3).num_rows == 6


def test_an_empty_topic_is_an_empty_table(broker: BrokerThread) -> None:
    table = read_arrow("empty", broker.servers, fields=FIELDS).read_all()
    assert (table.num_rows, table.schema.field("user").type) == (0, pa.int64())


def test_a_reader_that_is_dropped_leaves_no_connection(broker: BrokerThread) -> None:
    dataset = topic_dataset("t", broker.servers)
    reader = dataset.scanner().to_reader()
    reader.read_next_batch()
    (scan,) = dataset.scans
    assert scan.reader.is_open
    del reader
    assert not scan.reader.is_open


def test_pandas_polars_and_duckdb_take_the_reader(broker: BrokerThread) -> None:
    columns = ["user", "page"]
    users = COUNT * (COUNT - 1)
    frame = read_arrow("t", broker.servers, fields=FIELDS, columns=columns).read_pandas()
    assert frame["user"].sum() == users
    polars = pl.from_arrow(read_arrow("t", broker.servers, fields=FIELDS, columns=columns))
    assert isinstance(polars, pl.DataFrame)
    assert polars["user"].sum() == users
    with duckdb.connect() as connection:
        connection.register("t", read_arrow("t", broker.servers, fields=FIELDS, columns=columns))
        assert connection.execute('SELECT sum("user") FROM t').fetchone() == (users,)


def test_duckdb_reads_only_the_range_of_a_predicate(broker: BrokerThread) -> None:
    t = topic_dataset("t", broker.servers, fields=FIELDS)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", t)

        def queried(sql: str) -> tuple[object, int]:
            before = sent_bytes(broker)
            found = connection.execute(sql).fetchone()
            assert found is not None
            return found[0], sent_bytes(broker) - before

        everything, whole = queried("SELECT count(*) FROM t")
        assert everything == 2 * COUNT
        assert whole > 4_000_000
        late = datetime.fromtimestamp(TIME_MS / 1000 + COUNT - 100, UTC)
        found, size = queried(f"SELECT count(*) FROM t WHERE timestamp >= '{late.isoformat()}'")
        assert found == 200
        assert size < whole / 20
        found, size = queried('SELECT sum("user") FROM t WHERE "offset" BETWEEN 900 AND 909')
        assert found == 2 * sum(range(900, 910))
        assert size < whole / 10
        found, size = queried("SELECT count(*) FROM t WHERE partition = 1")
        assert found == COUNT
        assert size < 0.6 * whole
        found, size = queried("SELECT count(*) FROM t WHERE partition = 7")
        assert found == 0
        assert size < 10_000
    assert t.error is None


def test_polars_reads_only_the_range_of_a_predicate(broker: BrokerThread) -> None:
    t = topic_dataset("t", broker.servers, fields=FIELDS)
    first = pl.scan_pyarrow_dataset(t).filter(pl.col("offset") < 10).select("user").collect()
    assert sorted(first["user"]) == sorted([*range(10), *range(10)])
    assert [scan.reader.offset_count for scan in t.scans] == [20]


def test_a_dataset_keeps_its_bounds_while_the_topic_grows(broker: BrokerThread) -> None:
    with Admin(broker.servers) as admin:
        admin.create_topic("growing")
    with Producer(broker.servers) as producer:
        producer.send_many("growing", [b"{}"] * 10)
        dataset = topic_dataset("growing", broker.servers)
        producer.send_many("growing", [b"{}"] * 10)
    assert dataset.count_rows() == 10
    assert topic_dataset("growing", broker.servers).head(15).num_rows == 15


def test_what_a_dataset_of_files_can_do_is_refused(broker: BrokerThread) -> None:
    dataset = topic_dataset("t", broker.servers)
    with pytest.raises(NotImplementedError, match="a topic has no files"):
        dataset.get_fragments()
