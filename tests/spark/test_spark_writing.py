"""The rows of a task, against a real broker and without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import ConnectionFailed, InvalidRecord, UnknownTopicOrPartition
from millrace.records import Headers
from millrace.sync import Admin, Consumer, Producer
from millrace_server.testing import BrokerThread
from millrace_spark.errors import RowRefused
from millrace_spark.options.write_options import WriteOptions
from millrace_spark.writing.row_writer import Tally, write_rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int32(),
}
PARTITIONS = 3
TOPICS = ("clicks", "views", "keyed", "sent", "random")


@pytest.fixture(scope="module")
def servers(broker: BrokerThread) -> Iterator[str]:
    """The broker, with topics of three partitions and a compacted one."""
    with Admin(broker.servers) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, partitions=PARTITIONS)
        admin.create_topic("narrow", partitions=2, configs={"max.message.bytes": 20_000})
        admin.create_topic("latest", partitions=1, configs={"cleanup.policy": "compact"})
    yield broker.servers


def write(
    servers: str,
    batches: Sequence[Mapping[str, Any]],
    *,
    topic: str | None = None,
    headers: Headers = (),
    **types: pa.DataType,
) -> Tally:
    """Writes columns given as lists, a batch after the other."""
    options = WriteOptions(servers=servers, topic=topic, deadline_ms=10_000)
    kinds = {**TYPES, **types}
    made = [
        pa.record_batch({name: pa.array(items, kinds[name]) for name, items in batch.items()})
        for batch in batches
    ]
    return write_rows(iter(made), tuple(batches[0]), options, headers=headers)


def records(servers: str, tally: Tally) -> list[Any]:
    """What lies where the tally says, in the order of topics, partitions and offsets."""
    found = []
    for (topic, partition), (first, last) in sorted(tally.spans.items()):
        with Consumer(servers) as consumer:
            consumer.assign([(topic, partition)])
            consumer.seek((topic, partition), first)
            for record in consumer:
                if record.offset <= last:
                    found.append(record)
                if record.offset >= last:
                    break
    return found


def test_every_column_is_in_the_record_and_null_is_null(servers: str) -> None:
    headers = [[("a", b"1"), ("a", None)], [], None, [("ü", b"")]]
    tally = write(
        servers,
        [
            {
                "value": [b"one", None, b"", b"four"],
                "key": [b"k", b"k", None, b""],
                "headers": headers,
                "topic": ["clicks", "views", "clicks", "clicks"],
                "partition": [2, 1, 0, None],
            }
        ],
    )
    found = {
        (record.topic, record.value): (record.partition, record.key, record.headers)
        for record in records(servers, tally)
    }
    by_key = found["clicks", b"four"][0]
    assert found == {
        ("clicks", b"one"): (2, b"k", (("a", b"1"), ("a", None))),
        ("views", None): (1, b"k", ()),
        ("clicks", b""): (0, None, ()),
        ("clicks", b"four"): (by_key, b"", (("ü", b""),)),
    }
    assert (tally.rows, tally.size_bytes) == (4, 9)


def test_text_is_written_as_utf8_and_the_option_wins_over_the_column(servers: str) -> None:
    batch = {"value": ["größe", None], "key": ["ä", "b"]}
    tally = write(servers, [batch], topic="views", value=pa.string(), key=pa.string())
    found = {(record.topic, record.key, record.value) for record in records(servers, tally)}
    assert found == {("views", "ä".encode(), "größe".encode()), ("views", b"b", None)}


def test_keys_go_where_the_producer_puts_them_in_the_order_of_the_rows(servers: str) -> None:
    keys = [b"user-%d" % (number % 50) for number in range(2_000)]
    values = [b"%d" % number for number in range(2_000)]
    batches = [
        {"value": values[at : at + 300], "key": keys[at : at + 300]} for at in range(0, 2_000, 300)
    ]
    tally = write(servers, batches, topic="keyed")
    placed = {(record.partition, record.key, record.value) for record in records(servers, tally)}
    with Producer(servers) as producer:
        receipts = producer.send_many("sent", values, keys=keys)
        assert placed == {(receipts[row].partition, keys[row], values[row]) for row in range(2_000)}
    for partition in range(PARTITIONS):
        written = [
            int(record.value) for record in records(servers, tally) if record.partition == partition
        ]
        assert written == sorted(written)


@pytest.mark.parametrize("headers", [(), (("query", b"7"),)])
def test_a_topic_that_takes_small_batches_gets_all_rows_in_parts(
    servers: str, headers: Headers
) -> None:
    values = [b"%05d" % number + bytes(95) for number in range(5_000)]
    batches = [{"value": values[:4_000]}, {"value": values[4_000:]}]
    tally = write(servers, batches, topic="narrow", headers=headers)
    assert tally.rows == 5_000
    assert sorted(record.value for record in records(servers, tally)) == values
    with pytest.raises(RowRefused, match="a row is too large for a record of topic narrow"):
        write(servers, [{"value": [b"fits", bytes(30_000)]}], topic="narrow")


def test_rows_without_keys_are_all_written_and_headers_are_appended(
    servers: str,
) -> None:
    headers: Headers = (("millrace.query", b"q"), ("millrace.batch", b"7"))
    values = [b"%d" % number for number in range(5_000)]
    tally = write(servers, [{"value": values}, {"value": values}], topic="clicks", headers=headers)
    found = [record for record in records(servers, tally) if record.headers == headers]
    assert sorted(record.value for record in found) == sorted(2 * values)
    batch = {"value": [b"v"], "headers": [[("own", b"1")]]}
    tally = write(servers, [batch], topic="clicks", headers=headers)
    assert [record.headers for record in records(servers, tally)] == [(("own", b"1"), *headers)]


ITEM = st.none() | st.binary(max_size=9) | st.sampled_from([b"v" * 60_000, b"w" * 90_000])
ROWS = st.lists(
    st.tuples(ITEM, ITEM, st.none() | st.integers(0, PARTITIONS - 1)), min_size=1, max_size=12
)


@settings(max_examples=20)
@given(ROWS, st.integers(1, 40), st.booleans(), st.booleans())
def test_rows_are_read_back_as_they_were_given(
    servers: str,
    rows: list[tuple[bytes | None, bytes | None, int | None]],
    times: int,
    is_keyed: bool,
    is_named: bool,
) -> None:
    rows = rows * times
    batch: dict[str, list[Any]] = {"value": [value for value, _, _ in rows]}
    if is_keyed:
        batch["key"] = [key for _, key, _ in rows]
    if is_named:
        batch["partition"] = [partition for _, _, partition in rows]
    tally = write(servers, [batch, batch], topic="random")
    found = records(servers, tally)
    due = [
        (key if is_keyed else None, value, partition if is_named else None)
        for value, key, partition in 2 * rows
    ]
    assert tally.rows == len(found) == len(due)
    assert Counter((record.key, record.value) for record in found) == Counter(
        (key, value) for key, value, _ in due
    )
    for number in range(PARTITIONS):
        # What names its partition, or has a key, is in the order of the rows.
        named = [(key, value) for key, value, partition in due if partition == number]
        there = [(record.key, record.value) for record in found if record.partition == number]
        rest = iter(there)
        assert all(row in rest for row in named)


def test_no_rows_are_no_records(servers: str) -> None:
    assert write(servers, [{"value": []}], topic="clicks") == Tally()


@pytest.mark.parametrize(
    ("batch", "topic", "error", "sentence"),
    [
        ({"value": [b"v"], "topic": [None]}, None, RowRefused, "^topic: a row has no topic; fill"),
        (
            {"value": [b"v", b"w"], "partition": [0, 3]},
            "views",
            RowRefused,
            "^partition: a row names 3, and topic views has 0 to 2; correct it",
        ),
        ({"value": [b"v"], "partition": [-1]}, "views", RowRefused, "a row names -1"),
        (
            {"value": [b"v"], "headers": [[(None, b"x")]]},
            "views",
            RowRefused,
            "^headers: a header of a row has no key",
        ),
        (
            {"value": [b"v", bytes(2 << 20)]},
            "views",
            RowRefused,
            "^value: a row is too large for a record of topic views: the limit is ",
        ),
        ({"value": [b"v"]}, "nowhere", UnknownTopicOrPartition, "no topic 'nowhere'; create it"),
        (
            {"value": [b"v"], "key": [b"k"]},
            "nowhere",
            UnknownTopicOrPartition,
            "no topic 'nowhere'; create it",
        ),
        (
            {"value": [b"v", b"w"], "key": [b"k", None]},
            "latest",
            InvalidRecord,
            "has no key, and topic 'latest' is compacted.*give every record a key",
        ),
    ],
)
def test_a_row_that_is_no_record_fails_the_task_in_one_sentence(
    servers: str,
    batch: dict[str, list[Any]],
    topic: str | None,
    error: type[Exception],
    sentence: str,
) -> None:
    with pytest.raises(error, match=sentence):
        write(servers, [batch], topic=topic)


def test_a_failure_in_a_later_batch_fails_the_task(servers: str) -> None:
    good = {"value": [b"v"], "partition": [0]}
    bad = {"value": [b"v"], "partition": [9]}
    with pytest.raises(RowRefused, match="names 9"):
        write(servers, [good, bad, good], topic="views")


def test_a_broker_that_is_not_there_is_given_up_at_the_deadline(unused_tcp_port: int) -> None:
    options = WriteOptions(servers=f"127.0.0.1:{unused_tcp_port}", topic="clicks", deadline_ms=200)
    batch = pa.record_batch({"value": pa.array([b"v"])})
    with pytest.raises(ConnectionFailed, match=str(unused_tcp_port)):
        write_rows(iter([batch]), ("value",), options)
