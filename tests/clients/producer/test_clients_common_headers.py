"""Many records with the same headers: sent fast, and no less whole than others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace._producer.columns import Columns, headers_column
from millrace.errors import UnknownTopicOrPartition
from millrace.records import Headers
from millrace.sync import Admin, Consumer, Producer
from millrace_protocol.records import HEADER_SIZE, encode_batch
from millrace_server.testing import BrokerThread

MARKS: Headers = (("query", b"7"), ("query", None), ("größe", b""))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(topic={"durability": "os"}) as running:
        with Admin(running.servers) as admin:
            admin.create_topic("marked", partitions=3)
        yield running


@pytest.mark.parametrize("keys", [None, [b"%d" % number for number in range(3_000)]])
def test_every_record_of_a_call_has_the_headers_that_all_of_them_have(
    broker: BrokerThread, keys: list[bytes] | None
) -> None:
    values = [b"%d" % number for number in range(3_000)]
    with Producer(broker.servers) as producer:
        receipts = producer.send_many("marked", values, keys=keys, headers=[MARKS] * len(values))
        wanted = {(place.partition, place.offset): i for i, place in enumerate(receipts)}
    found = {}
    with Consumer(broker.servers) as consumer:
        consumer.assign([("marked", partition) for partition in range(3)], start="earliest")
        for record in consumer:
            found[record.partition, record.offset] = record
            if len(found.keys() & wanted.keys()) == len(values):
                break
    for place, index in wanted.items():
        record = found[place]
        assert record.headers == MARKS
        assert record.value == values[index]
        assert record.key == (None if keys is None else keys[index])


def test_headers_of_which_one_is_wrong_are_refused_wherever_it_is() -> None:
    good: Headers = (("kind", b"click"),)
    for wrong in ((("kind", bytearray(b"click")),), (("kind", "click"),), {"kind": b"click"}):
        for at in (0, 1, 2):
            items: list[Any] = [good, good, good]
            items[at] = wrong
            try:
                column, _ = headers_column(items)
            except TypeError:
                continue
            assert column == [good] * 3
            assert all(type(value) is bytes for headers in column for _, value in headers)


HEADERS = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=4
).map(tuple)


@given(HEADERS, st.lists(st.none() | st.binary(max_size=100), min_size=1, max_size=50))
def test_records_take_no_more_than_the_bound_of_common_headers(
    headers: Headers, values: list[bytes | None]
) -> None:
    column, header_bytes = headers_column([headers] * len(values))
    assert header_bytes is not None
    columns = Columns(values, None, column, 0, header_bytes=header_bytes)
    batch = encode_batch(values, headers=column, timestamps_ms=0)
    assert len(batch) - HEADER_SIZE <= columns.size_bytes(0, len(values))
    apart = [encode_batch([value], headers=[headers], timestamps_ms=0) for value in values]
    assert len(batch) <= sum(map(len, apart))


def test_a_producer_knows_how_many_partitions_a_topic_has(broker: BrokerThread) -> None:
    with Producer(broker.servers) as producer:
        assert producer.partition_count("marked") == 3
        with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
            producer.partition_count("nowhere")
