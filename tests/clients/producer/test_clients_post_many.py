"""Many records posted at once by synchronous code: on their way while the next are made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millrace.errors import DeliveryFailed, MessageTooLarge, UnknownTopicOrPartition
from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with BrokerThread(topic={"durability": "os"}) as running:
        with Admin(running.servers) as admin:
            admin.create_topic("posted", partitions=2)
        yield running.servers


def test_receipts_come_in_the_order_of_the_values_of_each_call(servers: str) -> None:
    with Producer(servers) as producer:
        posted = [
            producer.post_many("posted", [b"%d" % number] * 100, partition=1) for number in range(9)
        ]
        offsets = [receipt.offset for call in posted for receipt in producer.receipts(call)]
    assert offsets == list(range(offsets[0], offsets[0] + 900))


def test_more_than_the_buffer_holds_is_posted_by_waiting_for_room(servers: str) -> None:
    with Producer(servers, buffer_bytes=2 << 20) as producer:
        posted = [producer.post_many("posted", [bytes(1000)] * 1500) for _ in range(4)]
        assert [len(producer.receipts(call)) for call in posted] == [1500] * 4


def test_a_failure_is_raised_by_receipts_or_else_by_flush(servers: str) -> None:
    with Producer(servers) as producer:
        too_large = producer.post_many("posted", [b"fits", bytes(17 << 20)])
        with pytest.raises(MessageTooLarge, match="max_request_bytes"):
            producer.receipts(too_large)
        producer.post_many("nowhere", [b"lost"])
        with pytest.raises(DeliveryFailed, match=r"1 record in 1 batch.*'nowhere'"):
            producer.flush()


def test_leaving_by_an_error_keeps_it_and_notes_undelivered_records(servers: str) -> None:
    with pytest.raises(ZeroDivisionError) as raised, Producer(servers) as producer:
        producer.post_many("nowhere", [b"lost"])
        raise ZeroDivisionError
    (note,) = raised.value.__notes__
    assert note.startswith("and the producer: 1 record in")
    with pytest.raises(DeliveryFailed) as failed, Producer(servers) as producer:
        producer.post_many("nowhere", [b"lost"])
    assert isinstance(failed.value.failures[0], UnknownTopicOrPartition)
