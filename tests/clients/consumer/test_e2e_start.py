"""Where a consumer without a group begins to read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer
from millrace import sync as millrace_sync
from millrace_server.testing import Broker, BrokerThread


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running, Admin(running.servers) as admin:
        await admin.create_topic("t")
        async with Producer(running.servers) as producer:
            await producer.send_many("t", [b"0", b"1", b"2"])
        yield running


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, b"0"),
        ({"auto_offset_reset": "earliest"}, b"0"),
        ({"auto_offset_reset": "error"}, b"0"),
        ({"auto_offset_reset": "latest"}, b"new"),
        ({"start": "latest"}, b"new"),
        ({"start": "earliest", "auto_offset_reset": "latest"}, b"0"),
        ({"start": "latest", "auto_offset_reset": "earliest"}, b"new"),
    ],
)
async def test_auto_offset_reset_decides_where_no_start_is_given(
    broker: Broker, options: dict[str, Any], first: bytes
) -> None:
    async with (
        Consumer(broker.servers, "t", **options) as consumer,
        Producer(broker.servers) as producer,
    ):
        # Its position is known once it has been asked for.
        await consumer.position(("t", 0))
        await producer.send("t", b"new")
        assert (await consumer.getone()).value == first


def test_a_blocking_consumer_begins_there_too() -> None:
    with (
        BrokerThread() as broker,
        millrace_sync.Admin(broker.servers) as admin,
        millrace_sync.Producer(broker.servers) as producer,
    ):
        admin.create_topic("t")
        producer.send("t", b"old")
        with millrace_sync.Consumer(broker.servers, "t", auto_offset_reset="latest") as consumer:
            consumer.position(("t", 0))
            producer.send("t", b"new")
            found = consumer.getone()
    assert found is not None
    assert found.value == b"new"
