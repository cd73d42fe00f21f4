"""Arrow columns sent without an object per record: the same records as by `send_many`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace._producer.accumulator import Accumulator
from millrace._producer.arrow_batch import ArrowBatch
from millrace._producer.arrow_columns import ArrowColumns
from millrace._producer.produce_queue import ProduceQueue
from millrace._producer.receipts import Deliveries, Receipts
from millrace.config import Compression, ProducerConfig
from millrace.errors import DeliveryFailed, MessageTooLarge, UnknownTopicOrPartition
from millrace.records import Record
from millrace.sync import Admin, Consumer, Producer
from millrace_protocol.records import Codec, decode_records
from millrace_server.testing import BrokerThread

PARTITIONS = 3
OWNER: Any = None
BATCH_BYTES = 1000
ITEM = st.none() | st.binary(max_size=9) | st.integers(0, 1100).map(bytes)
ITEMS = st.lists(ITEM, min_size=1, max_size=60) | st.integers(0, 300).flatmap(
    lambda size: st.lists(st.just(bytes(size)), min_size=1, max_size=60)
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with BrokerThread(topic={"durability": "os"}) as running:
        with Admin(running.servers) as admin:
            for topic in ("arrow", "general", "single"):
                admin.create_topic(topic, partitions=1 if topic == "single" else PARTITIONS)
        yield running.servers


def written(servers: str, receipts: Receipts) -> list[Record]:
    """The records of one partition that the receipts tell of, all of them in one piece."""
    first, last = receipts[0], receipts[-1]
    with Consumer(servers) as consumer:
        consumer.assign([(first.topic, first.partition)])
        consumer.seek((first.topic, first.partition), first.offset)
        found = []
        for record in consumer:
            found.append(record)
            if record.offset >= last.offset:
                break
    return found


class Tank:
    """An accumulator whose topic is known, and all that it was given, encoded."""

    def __init__(self, partitions: int = 1, **options: Any) -> None:
        settings = {"batch_bytes": BATCH_BYTES, "max_request_bytes": 2000, "buffer_bytes": 1 << 20}
        config = ProducerConfig(**(settings | options))
        self.produce_queue = ProduceQueue(config, rng=random.Random(1))
        self.accumulator = Accumulator(
            config, self.produce_queue, owner=OWNER, rng=random.Random(1)
        )
        self.accumulator.assign("t", partitions)

    def rows(self, deliveries: Deliveries) -> list[tuple[bytes | None, bytes | None]]:
        found = []
        for batch in Receipts(deliveries._runs).batches():
            assert batch.error is None
            batch.encode(Codec.NONE, 7, 0, 3)
            assert batch.payload is not None
            assert len(batch.payload) <= 61 + batch.size_bytes
            found += [(key, value) for _, _, key, value, _ in decode_records(bytes(batch.payload))]
        return found


@given(ITEMS, st.data())
def test_batches_have_the_rows_in_order_and_are_of_about_one_size(
    values: list[bytes | None], data: st.DataObject
) -> None:
    size = len(values)
    keys = data.draw(st.none() | st.lists(ITEM, min_size=size, max_size=size))
    skipped = data.draw(st.integers(0, size - 1))
    columns = ArrowColumns.of(
        pa.array(values, pa.binary())[skipped:],
        None if keys is None else pa.array(keys, pa.binary())[skipped:],
        5,
    )
    tank = Tank()
    deliveries = tank.accumulator.take("t", 0, columns)
    batches = Receipts(deliveries._runs).batches()
    sizes = [batch.size_bytes for batch in batches]
    assert tank.accumulator.buffered_bytes == sum(sizes) == columns.size_bytes
    is_arrow = 2 * columns.size_bytes >= BATCH_BYTES
    assert all(isinstance(batch, ArrowBatch) == is_arrow for batch in batches)
    for batch in batches:
        assert batch.size_bytes <= BATCH_BYTES or batch.record_count == 1
    expected_keys = [None] * size if keys is None else keys
    assert tank.rows(deliveries) == list(zip(expected_keys, values, strict=True))[skipped:]


def test_rows_of_one_size_are_shared_out_evenly() -> None:
    tank = Tank()
    columns = ArrowColumns.of(pa.array([bytes(82)] * 23, pa.binary()), None, 5)
    deliveries = tank.accumulator.take("t", 0, columns)
    batches = Receipts(deliveries._runs).batches()
    assert [batch.record_count for batch in batches] == [8, 8, 7]


def test_bytes_behind_a_null_are_neither_sent_nor_counted() -> None:
    hidden = pa.Array.from_buffers(
        pa.binary(),
        3,
        [
            pa.py_buffer(bytes([0b101])),
            pa.py_buffer(pa.array([0, 600, 1200, 1800], pa.int32()).buffers()[1]),
            pa.py_buffer(b"a" * 600 + b"b" * 600 + b"c" * 600),
        ],
    )
    tank = Tank()
    columns = ArrowColumns.of(hidden, None, 5)
    assert columns.size_bytes == 1200 + 3 * 18
    values = [value for _, value in tank.rows(tank.accumulator.take("t", 0, columns))]
    assert values == [b"a" * 600, None, b"c" * 600]


def test_rows_that_do_not_fit_wait_for_room_without_a_short_batch() -> None:
    tank = Tank(buffer_bytes=4000)
    columns = ArrowColumns.of(pa.array([bytes(82)] * 60, pa.binary()), None, 5)
    deliveries = tank.accumulator.take("t", 0, columns)
    assert tank.accumulator.backlog is not None
    taken = Receipts(deliveries._runs).batches()
    assert [batch.record_count for batch in taken] == [10, 10, 10, 10]
    for batch in taken:
        batch.ack(0, -1)
    tank.accumulator.release(taken)
    tank.accumulator.feed()
    assert tank.accumulator.has_room
    assert [count for _, _, count in deliveries._runs] == [10] * 6


@given(
    ITEMS,
    st.sampled_from(["none", "zstd"]),
    st.booleans(),
    st.sampled_from([pa.binary(), pa.string()]),
)
def test_records_are_read_back_as_they_were_given(
    servers: str,
    values: list[bytes | None],
    compression: Compression,
    is_keyed: bool,
    kind: pa.DataType,
) -> None:
    values = [None if value is None else value.hex().encode() for value in values] * 3
    keys = values[::-1] if is_keyed else None
    with Producer(servers, compression=compression, batch_bytes=2000) as producer:
        before = producer.post_many("single", [b"before"])
        posted = producer.post_arrow(
            "single",
            pa.array(values, pa.binary()).cast(kind),
            keys=None if keys is None else pa.array(keys, pa.binary()).cast(kind),
            partition=0,
        )
        after = producer.post_many("single", [b"after"])
        receipts = producer.receipts(posted)
        order = [producer.receipts(call)[0].offset for call in (before, posted, after)]
    assert order == [receipts[0].offset - 1, receipts[0].offset, receipts[-1].offset + 1]
    found = written(servers, receipts)
    assert [record.value for record in found] == values
    assert [record.key for record in found] == (keys or [None] * len(values))
    assert [record.offset for record in found] == [receipt.offset for receipt in receipts]
    assert [record.timestamp_ms for record in found] == [item.timestamp_ms for item in receipts]


def test_rows_without_keys_go_to_several_partitions(servers: str) -> None:
    values = pa.array([bytes(1000)] * 4000, pa.binary())
    with Producer(servers) as producer:
        receipts = producer.receipts(producer.post_arrow("arrow", values))
    assert {receipt.partition for receipt in receipts} == set(range(PARTITIONS))


def test_keys_without_a_partition_go_where_send_many_puts_them(servers: str) -> None:
    keys: list[bytes | None] = [b"user-%d" % (number % 20) for number in range(300)]
    values = [b"%d" % number for number in range(300)]
    with Producer(servers) as producer:
        posted = producer.post_arrow("arrow", pa.array(values), keys=pa.array(keys))
        there = producer.receipts(posted)
        known = producer.send_many("general", values, keys=keys)
        assert [a.partition for a in there] == [b.partition for b in known]


def test_a_partitioner_is_asked_about_columns_too(servers: str) -> None:
    with Producer(servers, partitioner=lambda topic, key, count: 1) as producer:
        posted = producer.post_arrow("arrow", pa.array([bytes(1000)] * 500, pa.binary()))
        assert {receipt.partition for receipt in producer.receipts(posted)} == {1}


def test_no_rows_are_no_records(servers: str) -> None:
    with Producer(servers) as producer:
        posted = producer.post_arrow("arrow", pa.array([], pa.binary()))
        assert len(producer.receipts(posted)) == 0


def test_a_row_that_is_too_large_fails_alone(servers: str) -> None:
    values = pa.array([bytes(1000)] * 300 + [bytes(17 << 20)] + [b"fits"], pa.binary())
    with Producer(servers) as producer:
        posted = producer.post_arrow("arrow", values, partition=2)
        with pytest.raises(MessageTooLarge, match="max_request_bytes"):
            producer.receipts(posted)
        known = producer.send_many("arrow", [b"next"], partition=2)
    with Consumer(servers) as consumer:
        consumer.assign([("arrow", 2)])
        consumer.seek(("arrow", 2), known[0].offset - 1)
        assert next(iter(consumer)).value == b"fits"


def test_invalid_rows_are_refused_as_by_send_many(servers: str) -> None:
    values = pa.array([bytes(1000)] * 300, pa.binary())
    with Producer(servers) as producer:
        producer.send_many("arrow", [b"known"])
        with pytest.raises(UnknownTopicOrPartition, match="partition 9: arrow has"):
            producer.post_arrow("arrow", values, partition=9)
        with pytest.raises(ValueError, match="keys: 2 for 300 values"):
            producer.post_arrow("arrow", values, keys=values[:2])
        with pytest.raises(TypeError, match=r"values: must be an Arrow array.*not int64"):
            producer.post_arrow("arrow", pa.array([1, 2]))
        with pytest.raises(TypeError, match=r"keys: must be .*combine its chunks"):
            producer.post_arrow("arrow", values[:1], keys=pa.chunked_array([[b"k"]]))
        producer.post_arrow("nowhere", values)
        with pytest.raises(DeliveryFailed, match=r"300 records in 1 batch.*'nowhere'"):
            producer.flush()
